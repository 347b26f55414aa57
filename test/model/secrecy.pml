/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Secrecy of a round: whatever the aggregator says, and in whatever order it delivers.
 *
 * Four hospitals, threshold 3. Hospital 3 is corrupt: it signs and reveals anything, and is proven
 * guilty at any time. The aggregator is corrupt too: it puts any hospital into any later attempt,
 * names any survivors to it, and hands every signature on. Honest hospitals crash and restart.
 *
 * A set is a bit mask of hospitals. The sum of a set is known once a threshold of hospitals
 * revealed shares for it in one attempt. Checked in every state:
 * - no two sums of a round are known whose sets differ by more than a hospital proven guilty,
 * - nobody can restore both secrets of an honest hospital in one attempt.
 *
 * What a hospital does: Hospital._settle, Hospital._reveal, Promises.check_revealing. Faults to be
 * found: LOW_THRESHOLD, FORGETS, SIGNS_ANYTHING, GOES_BACK.
 */
#ifdef LOW_THRESHOLD
#define T 2
#else
#define T 3
#endif
#define QUORUM 3
#define HONEST 3
#define CORRUPT 8  /* hospital 3 */
#define ATTEMPTS 2
#define NONE 0

byte at[HONEST], sent[HONEST];   /* attempts, from 1; sent is durable and no attempt is below it */
byte settled[6];                  /* by hospital and attempt: set, durable */
byte revealed[HONEST];           /* the set in this round, durable */
byte signatures[32];             /* by attempt and set: who signed */
byte shares[32];                 /* by attempt and set: who revealed */
bool guilty;

#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1))
#define PLACE(attempt, set) (16 * ((attempt) - 1) + (set))
#define OF(hospital, attempt) (2 * (hospital) + (attempt) - 1)
#define BIT(hospital) (1 << (hospital))
#define KNOWN(attempt, set) (SIZE(shares[PLACE(attempt, set)] | CORRUPT) >= T)
#define MAY_REVEAL(h, set) (revealed[h] == NONE || revealed[h] == set || \
  (guilty && set == (revealed[h] & ~CORRUPT)))

byte h, set, other, i, j, mine, masks;
bool first, differ, both;

inline check() {
  d_step {
    /* Two sums of one round. */
    i = 1; first = 0; differ = 0; other = 0;
    do
    :: i <= ATTEMPTS -> j = 1;
       do
       :: j < 16 ->
          if
          :: KNOWN(i, j) && SIZE(j) >= QUORUM ->
             if
             :: first && ((other ^ j) & ~(guilty -> CORRUPT : 0)) -> differ = 1
             :: !first -> first = 1; other = j
             :: else
             fi
          :: else
          fi; j++
       :: else -> break
       od; i++
    :: else -> break
    od;
    assert(!differ);
    /* Both secrets of an honest hospital: the self seed of who is in a set, else the mask secret. */
    i = 1; both = 0;
    do
    :: i <= ATTEMPTS -> h = 0;
       do
       :: h < HONEST -> mine = CORRUPT; masks = CORRUPT; j = 1;
          do
          :: j < 16 ->
             if
             :: j & BIT(h) -> mine = mine | shares[PLACE(i, j)]
             :: else -> masks = masks | shares[PLACE(i, j)]
             fi; j++
          :: else -> break
          od;
          if
          :: SIZE(mine) >= T && SIZE(masks) >= T -> both = 1
          :: else
          fi; h++
       :: else -> break
       od; i++
    :: else -> break
    od;
    assert(!both);
    h = 0; i = 0; j = 0; other = 0; mine = 0; masks = 0; first = 0
  }
}

active proctype adversary() {
  do
  :: atomic {
       select(h : 0 .. 2);
       if
       :: at[h] < ATTEMPTS -> at[h]++
       :: at[h] && sent[h] < at[h] -> sent[h] = at[h]
       :: at[h] > sent[h] -> at[h] = sent[h]  /* a crash: what was not durable is forgotten */
#ifdef GOES_BACK
       :: at[h] > 1 -> at[h] = 1; sent[h] = 1
#endif
#ifdef FORGETS
       :: revealed[h] -> revealed[h] = NONE; settled[OF(h, 1)] = NONE; settled[OF(h, 2)] = NONE
#endif
       :: !guilty -> guilty = 1
       :: at[h] && sent[h] == at[h] ->
          if
          :: set = 15 :: set = 7 :: set = 11 :: set = 13 :: set = 14
          fi;
          if
#ifdef SIGNS_ANYTHING
          :: (set & BIT(h)) && settled[OF(h, at[h])] == NONE ->
#else
          :: (set & BIT(h)) && settled[OF(h, at[h])] == NONE && MAY_REVEAL(h, set) ->
#endif
             settled[OF(h, at[h])] = set;
             signatures[PLACE(at[h], set)] = signatures[PLACE(at[h], set)] | BIT(h)
          :: else
          fi
       :: at[h] && settled[OF(h, at[h])] != NONE ->
          set = settled[OF(h, at[h])];
          if
          :: SIZE(signatures[PLACE(at[h], set)] | (set & CORRUPT)) >= T ->
             revealed[h] = set;
             shares[PLACE(at[h], set)] = shares[PLACE(at[h], set)] | BIT(h)
          :: else
          fi
       fi;
       h = 0; set = 0;
       check()
     }
  od
}
