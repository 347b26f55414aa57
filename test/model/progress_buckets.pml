/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Progress of a round in which each bucket has a sum of its own, whoever crashes or lies.
 *
 * Eight hospitals in two buckets of four, 0 to 3 and 4 to 7, or with THREES nine in three of three;
 * threshold and quorum are 6. Hospitals 3 and 7 may deal shares that restore nothing: each is
 * proven guilty by a complaint, or once shares were revealed. For crashes, restarts and deadlines
 * see progress.pml: SPIN reports a state in which nothing can happen and the round has not ended.
 *
 * So that it stays small: who is there answers and signs at once (who does not is one that crashed
 * before), reveals alone come one by one; and of hospitals of a bucket that are alike in everything
 * the first one goes first.
 *
 * The aggregator: Aggregator._end_share, _end_train, _kept, _fail_alone, _convict,
 * _end_with_too_few, AggregatorState.reopen. The hospital: check_whole, Promises.check_revealing
 * and owed. A round ends RELEASED, or ABANDONED if of a set for which shares were revealed too few
 * are left in buckets of three, or one of these does not come back; or (_fail_alone) if those who
 * are there are enough but for the buckets, three times in vain; in the last round (LAST) if nobody
 * else is awaited. With SILENT, hospitals 3 and 7 send no update from any moment on, though they
 * are there: after OFTEN attempts that fail for it the round is ABANDONED. (If one is needed for
 * the quorum, buckets or not, it is waited for until an operator withdraws it: not modelled.) No
 * run is without an end (-l). If nobody else is awaited, all rounds end in the code (FINISHED),
 * here this round.
 * Faults to be found: NEVER_ABANDONS (with THREES), NEVER_COUNTS (who is silent; with SILENT, and
 * with SILENT, THREES and LAST), COUNTS_HOSPITALS (the aggregator does not look at buckets),
 * FORGETS_BOUND (if no bucket is left of a set for which shares were revealed, anybody is taken
 * in), KEEPS_BUCKETS (hospitals do not leave out a bucket of too few; with THREES), NO_PATIENCE,
 * UNBOUND.
 */
#define T 6
#define QUORUM 6
#ifdef THREES
#define ALL 511
#define A 7
#define B 56
#define C 448
#else
#define ALL 255
#define A 15
#define B 240
#define C 0
#endif
#define MUTE (mute -> 136 : 0)
#define OFTEN 4
#ifndef CRASHES
#define CRASHES 2
#endif

mtype = { OPEN, TRAIN, SETTLE, REVEAL, SUM, RELEASED, ABANDONED };

mtype phase = OPEN;
short alive = ALL;
short here = ALL;   /* who answered in this phase of this attempt */
short members, survivors;
short aside;        /* who dealt shares, and does not have to train with too few of its bucket */
short agreed;       /* who signed the survivors of this attempt: durable */
short bound;        /* whom the sum must be of, since shares were revealed for it; 0: anybody */
short shown[9];     /* by hospital: the set for which it revealed shares in this round, durable */
short guilty;
byte crashes = CRASHES, restarts = 1;
byte late;          /* deadlines that may pass */
byte waits[2];      /* attempts with too few in one bucket, before and after training: durable */
byte quiet;         /* attempts that failed as MUTE ones let the others train: durable */
bool mute;          /* whether hospitals 3 and 7 send no update any more */

#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1) + \
  (((set) >> 4) & 1) + (((set) >> 5) & 1) + (((set) >> 6) & 1) + (((set) >> 7) & 1) + \
  (((set) >> 8) & 1))
#define BIT(h) (1 << (h))
#define IS(h, set) (((set) & BIT(h)) != 0)
#define PART(set) (SIZE(set) >= 3 -> (set) : 0)
#define KEPT(set) (PART((set) & A) | PART((set) & B) | PART((set) & C))
#ifdef COUNTS_HOSPITALS
#define SUMMED(set) (set)
#else
#define SUMMED(set) KEPT(set)
#endif
#ifdef KEEPS_BUCKETS
#define OWED(set) ((set) & ~guilty)
#else
#define OWED(set) KEPT((set) & ~guilty)
#endif
#ifdef FORGETS_BOUND
#define LEFT(set) KEPT(set)
#else
#define LEFT(set) (KEPT(set) -> KEPT(set) : (set))
#endif
#define NEEDED ((bound -> bound : ALL) & ~guilty)
#define FEWEST (SIZE(bound) > QUORUM -> SIZE(bound) : QUORUM)
#define MAY_SIGN(h) (KEPT(survivors) == survivors && \
  (shown[h] == 0 || shown[h] == survivors || survivors == OWED(shown[h])))

/* Who is there answers at once. */
#define ASKED (phase == OPEN -> NEEDED : \
  (KEPT(members) == members -> members & ~MUTE : 0))
#define SIGNS(h) (IS(h, alive & survivors) && MAY_SIGN(h) -> BIT(h) : 0)
inline answer() {
  if
  :: phase == OPEN || phase == TRAIN -> here = here | (alive & ASKED)
  :: phase == SETTLE || phase == REVEAL ->
     agreed = agreed | SIGNS(0) | SIGNS(1) | SIGNS(2) | SIGNS(3) | SIGNS(4) | SIGNS(5) | \
       SIGNS(6) | SIGNS(7) | SIGNS(8)
  :: else
  fi
}
inline again() {
  phase = OPEN; here = 0; members = 0; survivors = 0; agreed = 0; aside = 0;
  if
  :: bound != 0 && SIZE(KEPT(NEEDED)) < FEWEST -> phase = ABANDONED
  :: else -> answer()
  fi
}
/* Enough are there, but too few in one bucket: in vain three times, with nobody awaited, or others
 * next to each other in a later round. */
#ifdef LAST
#define LATER 0
#else
#define LATER 1
#endif
#ifdef NEVER_ABANDONS
#define IN_VAIN 0
#else
#define IN_VAIN (bound == 0 && waits[phase == TRAIN] >= 3 && (LATER || THERE == NEEDED))
#endif
#define THERE (here | aside)
inline fail() {
  if
  :: SIZE(THERE) >= FEWEST && waits[phase == TRAIN] < 3 -> waits[phase == TRAIN]++
  :: else
  fi;
  if
  :: SIZE(THERE) >= FEWEST && IN_VAIN -> phase = ABANDONED
  :: else -> again()
  fi
}
inline train() {
  members = SUMMED(here); aside = here & ~members; here = 0; phase = TRAIN; answer()
}
inline settle() {
  survivors = SUMMED(here); here = 0; aside = 0; phase = SETTLE; answer()
}
inline convict(some) {
  guilty = guilty | (some);
#ifndef UNBOUND
  if
  :: phase == SUM || bound -> bound = (bound -> bound : survivors) & ~guilty; bound = LEFT(bound)
  :: else
  fi;
#endif
  again()
}

/* Of hospitals alike the first one goes first. */
#define ALIKE(g, h) (IS(g, alive) == IS(h, alive) && IS(g, here) == IS(h, here) && \
  IS(g, members) == IS(h, members) && IS(g, survivors) == IS(h, survivors) && \
  IS(g, agreed) == IS(h, agreed) && shown[g] == shown[h] && IS(g, bound) == IS(h, bound))
#ifdef THREES
#define FIRST(h) (!((h) == 1 && ALIKE(0, 1)) && !((h) == 2 && (ALIKE(0, 2) || ALIKE(1, 2))) && \
  !((h) == 5 && ALIKE(4, 5)) && !((h) == 8 && ALIKE(6, 8)))
#else
#define FIRST(h) (!((h) == 1 && ALIKE(0, 1)) && !((h) == 2 && (ALIKE(0, 2) || ALIKE(1, 2))) && \
  !((h) == 5 && ALIKE(4, 5)) && !((h) == 6 && (ALIKE(4, 6) || ALIKE(5, 6))))
#endif

#define CRASH(h) :: d_step { crashes > 0 && IS(h, alive) && FIRST(h) -> \
  crashes--; late++; alive = alive & ~BIT(h) }
#define START(h) :: d_step { IS(h, ALL & ~alive) && FIRST(h) -> alive = alive | BIT(h); answer() }
#define SHOW(h) :: d_step { phase == REVEAL && SIZE(agreed) >= T && \
  IS(h, alive & agreed & ~here) && FIRST(h) -> here = here | BIT(h); shown[h] = survivors }
#define EACH(STEP) STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8)
#define CONVICT(some) :: d_step { phase == SUM && ((some) & ~members) == 0 && \
  ((some) & guilty) == 0 -> convict(some) }
#define COMPLAIN(some) :: d_step { phase == TRAIN && ((some) & ~members) == 0 && \
  ((some) & guilty) == 0 -> convict(some) }

active proctype round() {
  do
  EACH(CRASH)
  EACH(START)
  EACH(SHOW)
  /* The aggregator starts again: what is not durable begins anew. */
  :: d_step { restarts > 0 && (phase == OPEN || phase == TRAIN) -> restarts--; again() }
  :: d_step { restarts > 0 && phase == SETTLE -> restarts--; here = 0 }
  :: d_step { restarts > 0 && (phase == REVEAL || phase == SUM) ->
       restarts--; here = 0; phase = REVEAL }

  :: atomic { phase == OPEN && 
       (here == NEEDED -> SIZE(here) >= FEWEST : late > 0) ->
       if
       :: here != NEEDED -> late--
       :: else
       fi;
       if
       :: SIZE(SUMMED(here)) >= FEWEST -> train()
       :: SIZE(SUMMED(here)) < FEWEST -> fail()
       :: SIZE(SUMMED(here)) < FEWEST && bound -> phase = ABANDONED  /* one stays away */
       fi }

  :: atomic { phase == TRAIN && ((members & ~here & ~MUTE) == 0 || late > 0) ->
       if
       :: (members & ~here & ~MUTE) -> late--
       :: else
       fi;
       if
       :: SIZE(SUMMED(here)) >= FEWEST -> settle()
#if defined(SILENT) && !defined(NEVER_COUNTS)
       :: SIZE(SUMMED(here)) < FEWEST && (members & MUTE & ~here) && \
          (bound || SIZE(THERE) >= FEWEST) ->
          quiet++;
          if
          :: quiet >= OFTEN -> phase = ABANDONED
          :: else -> fail()
          fi
#endif
       :: else -> fail()
       fi }

  :: d_step { phase == SETTLE && SIZE(agreed) >= T -> phase = REVEAL }
  :: d_step { phase == SETTLE && SIZE(agreed) < T && late > 0 -> late--; again() }

#ifdef NO_PATIENCE
  :: d_step { phase == REVEAL && late > 0 && SIZE(here) < T -> late--; again() }
#endif
  :: d_step { phase == REVEAL && SIZE(here) >= T -> phase = SUM }

  :: d_step { phase == SUM -> phase = RELEASED;
       assert(SIZE(survivors) >= QUORUM && KEPT(survivors) == survivors);
       assert(bound == 0 || survivors == bound) } ; break
  CONVICT(8)
  CONVICT(128)
  CONVICT(136)
  COMPLAIN(8)
  COMPLAIN(128)
#ifdef SILENT
  :: d_step { !mute -> mute = true }
#endif
  :: phase == ABANDONED -> break
  od
}
