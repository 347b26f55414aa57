/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Secrecy of a round in which each bucket has a sum of its own, whatever the aggregator says.
 *
 * Ten hospitals, threshold 7, dealt into a bucket of four (0 to 3) and two of three (4 to 6, 7 to
 * 9). One of each is corrupt: 3, 6 and 9. Another roster deals 0 and 4 the other way round.
 *
 * Two sums of the bucket of four are looked at, one and two: of which hospitals each is, and who
 * is proven guilty (3, 9, both or nobody), is chosen first; of choices alike but for names, one.
 * The aggregator names any survivors with the hospitals of sum one to some hospitals, in one
 * attempt, and any with those of sum two to some, in a later attempt, in the same, or in a later
 * one with the other roster. Nothing is lost by that: what a hospital reveals of other sums helps
 * to restore neither, and leaves it fewer sets to reveal for. The buckets of three are there as a
 * whole or not at all, as two of them are never summed. A hospital knows any of the proofs at any
 * time. It reveals without waiting for signatures, and does not ask whether the roster's seed is
 * another one: both is less than the code asks for. What it revealed for is durable, so crashes
 * change nothing; attempts only go up (GOES_BACK in secrecy.pml). No step waits for one of another
 * hospital, so they act one after the other.
 *
 * A sum is known once a threshold of hospitals revealed for sets that have it, whatever else is in
 * these. Checked in every state:
 * - both sums are known only if they differ by hospitals proven guilty,
 * - no sum of fewer than three is known,
 * - nobody can restore both secrets of an honest hospital in one attempt, also of those whose whole
 *   bucket is left out.
 *
 * What a hospital does: Hospital._settle (check_hospitals, check_whole), Hospital._reveal,
 * Promises.check_revealing and owed. Faults to be found: LOW_THRESHOLD, FORGETS, FORGETS_BUCKETS (a
 * hospital compares all survivors, not each bucket), SMALL_BUCKET (a bucket of two is unmasked),
 * TWO_SETS (a hospital reveals for two sets in one attempt).
 */
#ifdef LOW_THRESHOLD
#define T 5
#else
#define T 7
#endif
#define QUORUM 7
#ifdef SMALL_BUCKET
#define FEWEST 2
#else
#define FEWEST 3
#endif
#define CORRUPT 584             /* 3, 6 and 9 */
#define FIRST(other) ((other) -> 30 : 15)    /* a bucket by each roster: 0 to 3, or 1 to 4 */
#define SECOND(other) ((other) -> 97 : 112)  /* 4 to 6, or 0, 5, 6 */
#define THIRD 896                            /* 7 to 9 */

short one, two;       /* the two sums */
short guilty;
bool same, other;     /* sum two is of the same attempt, or by another roster */
short showed, again;  /* who revealed for sum one, and for sum two */
short seeds, masks;   /* who revealed the one or the other of 7 and 8, in the attempt of sum one */
short promised[10];   /* by hospital: the set it revealed for, durable */

#define BIT(h) (1 << (h))
#define IS(h, set) (((set) & BIT(h)) != 0)
#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1) + \
  (((set) >> 4) & 1) + (((set) >> 5) & 1) + (((set) >> 6) & 1) + (((set) >> 7) & 1) + \
  (((set) >> 8) & 1) + (((set) >> 9) & 1))
#define WHOLE(part) ((part) == 0 || SIZE(part) >= FEWEST)
#define KEPT(part) (SIZE(part) >= FEWEST -> (part) : 0)
#define MAY_SIGN(set, roster) (SIZE(set) >= QUORUM && WHOLE((set) & FIRST(roster)))
/* Whether each bucket that was revealed for, less who is guilty, is one of the other set. */
#define EQUAL(before, set) (((before) & FIRST(0)) == ((set) & FIRST(other)) && \
  ((before) & SECOND(0)) == ((set) & SECOND(other)) && ((before) & THIRD) == ((set) & THIRD))
#define LESS(before, some) (KEPT((before) & FIRST(0) & ~(some)) | \
  KEPT((before) & SECOND(0) & ~(some)) | KEPT((before) & THIRD & ~(some)))
#ifdef FORGETS_BUCKETS
#define AGAIN(before, set, some) ((before) == (set) || LESS(before, some) == (set))
#else
#define AGAIN(before, set, some) (EQUAL(before, set) || EQUAL(LESS(before, some), set))
#endif
/* Whatever it knows of who is guilty. */
#ifdef FORGETS
#define MAY_REVEAL(before, set) true
#else
#define MAY_REVEAL(before, set) ((before) == 0 || AGAIN(before, set, guilty & 8) || \
  AGAIN(before, set, guilty & 512) || AGAIN(before, set, guilty))
#endif
#ifdef TWO_SETS
#define ONCE(h) true
#else
#define ONCE(h) !(same && IS(h, showed))
#endif
#define MOVES(h) (!IS(h, CORRUPT) && ((showed | again) >> ((h) + 1)) == 0)
#define KNOWN(who) (SIZE((who) | CORRUPT) >= T)

short set;
byte h;

inline third() {
  if
  :: set & THIRD -> seeds = seeds | BIT(h)
  :: else -> masks = masks | BIT(h)
  fi
}

inline check() {
  d_step {
    assert(!(KNOWN(showed) && SIZE(one) < 3) && !(KNOWN(again) && SIZE(two) < 3));
    assert(!(KNOWN(showed) && KNOWN(again) && ((one ^ two) & ~guilty)));
    assert(!(same && KNOWN(showed) && KNOWN(again) && ((one ^ two) & ~CORRUPT)));
    assert(!(KNOWN(seeds) && KNOWN(masks)))
  }
}

inline name(sum, roster) {  /* survivors, of whom these are in the first bucket */
  if
  :: set = sum | SECOND(roster) | THIRD
  :: set = sum | SECOND(roster)
  :: set = sum | THIRD
  fi
}

active proctype adversary() {
  atomic {
    /* Of hospitals alike one stands for the others. */
    if
    :: same = 1
    :: skip
    :: other = 1
    fi;
    if
    :: one = 15 :: one = 7 :: one = 14 :: other -> one = 13 :: one = 12
    fi;
    if
    :: !other -> two = 15 :: !other -> two = 7 :: !other -> two = 14 :: !other -> two = 13
    :: !other -> two = 12
    :: other -> two = 30 :: other -> two = 22 :: other -> two = 14 :: other -> two = 28
    :: other -> two = 26
    fi;
    if
    :: !same -> guilty = guilty | 8
    :: skip
    fi;
    if
    :: guilty = guilty | 512
    :: skip
    fi
  }
  do
  :: one == two && !same -> break
  :: one != two || same -> atomic {
       select(h : 0 .. 8);
       if
       :: MOVES(h) && !IS(h, showed | again) ->
          name(one, 0);
          if
          :: IS(h, set) && MAY_SIGN(set, 0) ->
             showed = showed | BIT(h); promised[h] = set; third(); check()
          :: else
          fi
       :: MOVES(h) && !IS(h, again) && ONCE(h) ->
          name(two, other);
          if
          :: IS(h, set) && MAY_SIGN(set, other) && MAY_REVEAL(promised[h], set) ->
             again = again | BIT(h);
             if
             :: same -> third()
             :: else
             fi;
             check()
          :: else
          fi
       :: else
       fi;
       h = 0; set = 0
     }
  od
}
