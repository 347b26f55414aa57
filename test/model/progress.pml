/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Progress of a round: an honest aggregator ends it, whoever crashes, restarts or deals bad shares.
 *
 * Four hospitals, threshold and quorum 3. Hospitals and aggregator crash a few times, at any
 * moment, and start again at any later one. Hospital 3 may deal shares that restore nothing, and is
 * proven guilty then. A deadline passes only while somebody is away, once for each crash, so each
 * run is finite: SPIN reports a state in which nothing can happen and the round has not ended.
 *
 * The aggregator: Aggregator._end_open and those after it, _convict, AggregatorState.reopen. A
 * round ends RELEASED, or ABANDONED if fewer than the quorum are left of a set for which shares
 * were revealed. Faults to be found: NO_PATIENCE (another attempt opens after shares were
 * revealed), UNBOUND (the attempt after a conviction takes in anybody), REVEALS_EARLY (hospitals do
 * not wait for a threshold of signatures).
 */
#define T 3
#define QUORUM 3
#define ALL 15
#define LIAR 8
#ifndef CRASHES
#define CRASHES 3
#endif

mtype = { OPEN, TRAIN, SETTLE, REVEAL, SUM, RELEASED, ABANDONED };

mtype phase = OPEN;
byte alive = ALL;
byte here;        /* who answered in this phase of this attempt */
byte members, survivors;
byte agreed;      /* who signed the survivors of this attempt: durable */
byte bound;       /* whom the sum must be of, since shares were revealed for it; 0: anybody */
byte shown[4];    /* by hospital: the set for which it revealed shares in this round, durable */
byte guilty;
byte crashes = CRASHES, restarts = 1;
byte late;        /* deadlines that may pass */

#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1))
#define BIT(h) (1 << (h))
#define IS(h, set) (((set) & BIT(h)) != 0)
#define NEEDED ((bound -> bound : ALL) & ~guilty)
#define FEWEST (SIZE(bound) > QUORUM -> SIZE(bound) : QUORUM)
#define MAY_REVEAL(h) (shown[h] == 0 || shown[h] == survivors || \
  survivors == (shown[h] & ~guilty))

inline again() { phase = OPEN; here = 0; members = 0; survivors = 0; agreed = 0 }

#define CRASH(h) :: d_step { crashes > 0 && IS(h, alive) -> \
  crashes--; late++; alive = alive & ~BIT(h) }
#define START(h) :: d_step { !IS(h, alive) -> alive = alive | BIT(h) }
#define KEY(h) :: d_step { phase == OPEN && IS(h, alive & NEEDED & ~here) -> here = here | BIT(h) }
#define UPDATE(h) :: d_step { phase == TRAIN && IS(h, alive & members & ~here) -> \
  here = here | BIT(h) }
#define SIGN(h) :: d_step { (phase == SETTLE || phase == REVEAL) && \
  IS(h, alive & survivors & ~agreed) && MAY_REVEAL(h) -> agreed = agreed | BIT(h) }
#ifdef REVEALS_EARLY
#define SHOW(h) :: d_step { (phase == SETTLE || phase == REVEAL) && \
  IS(h, alive & agreed & ~here) -> here = here | BIT(h); shown[h] = survivors }
#else
#define SHOW(h) :: d_step { phase == REVEAL && SIZE(agreed) >= T && \
  IS(h, alive & agreed & ~here) -> here = here | BIT(h); shown[h] = survivors }
#endif
#define EACH(STEP) STEP(0) STEP(1) STEP(2) STEP(3)

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

  :: d_step { phase == OPEN && here == NEEDED -> members = here; here = 0; phase = TRAIN }
  :: d_step { phase == OPEN && late > 0 && here != NEEDED ->
       late--;
       if
       :: SIZE(here) >= FEWEST -> members = here; here = 0; phase = TRAIN
       :: else -> again()
       fi }

  :: d_step { phase == TRAIN && here == members -> survivors = here; here = 0; phase = SETTLE }
  :: d_step { phase == TRAIN && late > 0 && here != members ->
       late--;
       if
       :: SIZE(here) >= FEWEST -> survivors = here; here = 0; phase = SETTLE
       :: else -> again()
       fi }

  :: d_step { phase == SETTLE && SIZE(agreed) >= T -> phase = REVEAL }
  :: d_step { phase == SETTLE && SIZE(agreed) < T && late > 0 -> late--; again() }

#ifdef NO_PATIENCE
  :: d_step { phase == REVEAL && late > 0 && SIZE(here) < T -> late--; again() }
#endif
  :: d_step { phase == REVEAL && SIZE(here) >= T -> phase = SUM }

  :: d_step { phase == SUM -> phase = RELEASED;
       assert(SIZE(survivors) >= QUORUM && (bound == 0 || survivors == bound)) } ; break
  :: d_step { phase == SUM && (members & LIAR) && !guilty ->
       guilty = LIAR;
#ifndef UNBOUND
       bound = survivors & ~LIAR;
#endif
       again();
       if
       :: bound != 0 && SIZE(bound) < QUORUM -> phase = ABANDONED
       :: else
       fi }
  :: phase == ABANDONED -> break
  od
}
