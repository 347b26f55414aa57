/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Progress of a round in which hospitals mask with neighbours alone, whoever crashes or lies.
 *
 * Six hospitals in a ring, each with all others but the opposite one for neighbours: k = 4. Four
 * shares restore a secret, so any one hospital may be away, and no two; or with T=3 any two, and
 * then it depends on the witnesses: three of 0 to 3 have to sign. Four hospitals are a quorum.
 * Hospital 3 may deal shares that restore nothing, and is proven guilty then. For crashes, restarts
 * and deadlines see progress.pml: SPIN reports a state in which nothing can happen and the round
 * has not ended.
 *
 * The aggregator: Aggregator._gathered, _too_few and _end_with_too_few, Neighbourhoods.able, which
 * is here all or nobody: too few hospitals are enough for some of them alone. Faults to be found:
 * QUORUM_ALONE (the aggregator does not ask whether those who are there can end the round),
 * NEIGHBOURS_ALONE (it asks for neighbours, not for witnesses), NO_PATIENCE, UNBOUND.
 */
#ifndef T
#define T 4
#endif
#define Q 3
#define QUORUM 4
#define ALL 63
#define LIAR 8
#define WITNESSES 15
#ifndef CRASHES
#define CRASHES 2
#endif

mtype = { OPEN, TRAIN, SETTLE, REVEAL, SUM, RELEASED, ABANDONED };

mtype phase = OPEN;
byte alive = ALL;
byte here;        /* who answered in this phase of this attempt */
byte members, survivors;
byte agreed;      /* witnesses that signed the survivors of this attempt: durable */
byte bound;       /* whom the sum must be of, since shares were revealed for it; 0: anybody */
byte shown[6];    /* by hospital: the set for which it revealed shares in this round, durable */
byte guilty;
byte crashes = CRASHES, restarts = 1;
byte late;        /* deadlines that may pass */

#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1) + \
  (((set) >> 4) & 1) + (((set) >> 5) & 1))
#define BIT(h) (1 << (h))
#define IS(h, set) (((set) & BIT(h)) != 0)
#define OPPOSITE(h) ((h) < 3 -> (h) + 3 : (h) - 3)
#define HELD(h, set) (SIZE((set) & ~BIT(OPPOSITE(h))) >= T)
/* Whether each of some hospitals has enough holders in a set. */
#define FINE(h, names, set) (!IS(h, names) || HELD(h, set))
#define RESTORABLE(names, set) (FINE(0, names, set) && FINE(1, names, set) && \
  FINE(2, names, set) && FINE(3, names, set) && FINE(4, names, set) && FINE(5, names, set))
#define SIGNING(set) (SIZE((set) & WITNESSES) >= Q)
#ifdef QUORUM_ALONE
#define ABLE(names, set) true
#else
#ifdef NEIGHBOURS_ALONE
#define ABLE(names, set) RESTORABLE(names, set)
#else
#define ABLE(names, set) (RESTORABLE(names, set) && SIGNING(set))
#endif
#endif
#define NEEDED ((bound -> bound : ALL) & ~guilty)
#define FEWEST (SIZE(bound) > QUORUM -> SIZE(bound) : QUORUM)
#define MAY_REVEAL(h) (shown[h] == 0 || shown[h] == survivors || \
  survivors == (shown[h] & ~guilty))

inline again() { phase = OPEN; here = 0; members = 0; survivors = 0; agreed = 0 }

#define CRASH(h) :: d_step { crashes > 0 && IS(h, alive) -> \
  crashes--; late++; alive = alive & ~BIT(h) }
#define START(h) :: d_step { !IS(h, alive) -> alive = alive | BIT(h) }
#define KEY(h) :: d_step { phase == OPEN && IS(h, alive & NEEDED & ~here) -> here = here | BIT(h) }
/* Who has too few holders among the members sends nothing. */
#define UPDATE(h) :: d_step { phase == TRAIN && IS(h, alive & members & ~here) && \
  HELD(h, members) -> here = here | BIT(h) }
#define SIGN(h) :: d_step { (phase == SETTLE || phase == REVEAL) && \
  IS(h, alive & survivors & WITNESSES & ~agreed) && MAY_REVEAL(h) -> agreed = agreed | BIT(h) }
#define SHOW(h) :: d_step { phase == REVEAL && SIZE(agreed) >= Q && \
  IS(h, alive & survivors & ~here) && MAY_REVEAL(h) -> here = here | BIT(h); shown[h] = survivors }
#define EACH(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5)

active proctype round() {
  do
  EACH(CRASH)
  EACH(START)
  EACH(KEY)
  EACH(UPDATE)
  EACH(SIGN)
  EACH(SHOW)
  /* The aggregator starts again: what is not durable begins anew. */
  :: d_step { restarts > 0 && (phase == OPEN || phase == TRAIN) -> restarts--; again() }
  :: d_step { restarts > 0 && phase == SETTLE -> restarts--; here = 0 }
  :: d_step { restarts > 0 && (phase == REVEAL || phase == SUM) ->
       restarts--; here = 0; phase = REVEAL }

  :: d_step { phase == OPEN && here == NEEDED && ABLE(here, here) ->
       members = here; here = 0; phase = TRAIN }
  :: d_step { phase == OPEN && late > 0 && here != NEEDED ->
       late--;
       if
       :: SIZE(here) >= FEWEST && ABLE(here, here) -> members = here; here = 0; phase = TRAIN
       :: else -> again()
       fi }

  :: d_step { phase == TRAIN && here == members -> survivors = here; here = 0; phase = SETTLE }
  :: d_step { phase == TRAIN && late > 0 && here != members ->
       late--;
       if
       :: SIZE(here) >= FEWEST && ABLE(members, here) -> survivors = here; here = 0; phase = SETTLE
       :: else -> again()
       fi }

  :: d_step { phase == SETTLE && SIZE(agreed) >= Q -> phase = REVEAL }
  :: d_step { phase == SETTLE && SIZE(agreed) < Q && late > 0 -> late--; again() }

#ifdef NO_PATIENCE
  :: d_step { phase == REVEAL && late > 0 && !RESTORABLE(members, here) -> late--; again() }
#endif
  :: d_step { phase == REVEAL && RESTORABLE(members, here) -> phase = SUM }

  :: d_step { phase == SUM -> phase = RELEASED;
       assert(SIZE(survivors) >= QUORUM && (bound == 0 || survivors == bound)) } ; break
  :: d_step { phase == SUM && (members & LIAR) && !guilty ->
       guilty = LIAR;
#ifndef UNBOUND
       bound = survivors & ~LIAR;
#endif
       again();
       if
       :: bound != 0 && (SIZE(bound) < QUORUM || !ABLE(bound, bound)) -> phase = ABANDONED
       :: else
       fi }
  :: phase == ABANDONED -> break
  od
}
