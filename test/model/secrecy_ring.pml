/* Copyright 2026 The fdrl_ros maintainers
 * SPDX-License-Identifier: Apache-2.0
 *
 * Secrecy of a round in which hospitals mask with neighbours alone, whatever the aggregator says.
 *
 * Eight hospitals in a ring, four neighbours each: k = 4. Hospitals 3 and 7 are corrupt, so at most
 * c = 2 of a hospital's neighbours are: t = 4 > (k + 1 + c) / 2 shares restore a secret. The four
 * witnesses are 1 to 4, of whom one is corrupt, and q = 3 > (4 + 1) / 2 have to sign. The corrupt
 * aggregator leads each honest hospital through two attempts in any order, and names one of two
 * survivor sets to it, without 0 or without 4: neither is a neighbour of the other.
 *
 * The sum of an attempt is known once of each honest hospital one secret is: of its self seed, if
 * it is in the sum, else of its mask secret. Checked in every state:
 * - nobody can restore both secrets of an honest hospital in one attempt,
 * - every sum that is known is of a set for which honest hospitals revealed,
 * - no two sums of a round are known whose sets differ.
 *
 * What a hospital does: Hospital._settle, Hospital._reveal, Promises.check_revealing; what it does
 * once a hospital is proven guilty is in secrecy.pml. Faults to be found: LOW_THRESHOLD,
 * NO_WITNESSES, FEW_WITNESSES, ANYBODY_SIGNS, SIGNS_ANYTHING, FORGETS.
 */
#ifdef LOW_THRESHOLD
#define T 3
#else
#define T 4
#endif
#ifdef FEW_WITNESSES
#define Q 2
#else
#define Q 3
#endif
#define CORRUPT 136  /* hospitals 3 and 7 */
#ifdef ANYBODY_SIGNS
#define WITNESSES 255
#else
#define WITNESSES 30  /* hospitals 1 to 4 */
#endif
#define SET(s) ((s) -> 239 : 254)  /* survivors: without hospital 4, or without 0 */

byte signatures[4];  /* by attempt and set: witnesses that signed it */
byte shares[4];      /* by attempt and set: who revealed for it */

#define BIT(h) (1 << (h))
#define IS(h, set) (((set) & BIT(h)) != 0)
#define HONEST(h) (!IS(h, CORRUPT))
#define AT(attempt, s) (2 * (attempt) + (s))
#define HOLDERS(h) (((31 << ((h) + 6)) | (31 << ((h) + 6) >> 8) | (31 << ((h) + 6) >> 16)) & 255)
#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1) + \
  (((set) >> 4) & 1) + (((set) >> 5) & 1) + (((set) >> 6) & 1) + (((set) >> 7) & 1))
#ifdef FORGETS
#define MAY_REVEAL(h, s) true
#else
#define MAY_REVEAL(h, s) !IS(h, shares[AT(0, 1 - (s))] | shares[AT(1, 1 - (s))])
#endif
#ifdef SIGNS_ANYTHING
#define SIGNED_OTHER(h, a, s) false
#else
#define SIGNED_OTHER(h, a, s) IS(h, signatures[AT(a, 1 - (s))])
#endif
#ifdef NO_WITNESSES
#define AGREED(h, a, s) true
#else
#define AGREED(h, a, s) (SIZE((signatures[AT(a, s)] | CORRUPT) & WITNESSES) >= Q && \
  (IS(h, signatures[AT(a, s)]) || !IS(h, WITNESSES)))
#endif

byte h, a, s, mine, masks, sum, first;
bool whole, both, unagreed, differ;

inline check() {
  d_step {
    a = 0; both = 0; unagreed = 0; differ = 0; first = 0;
    do
    :: a < 2 -> h = 0; sum = 0; whole = 1;
       do
       :: h < 8 && !HONEST(h) -> h++
       :: h < 8 && HONEST(h) ->
          /* Set 0 is without hospital 0, set 1 without 4; all others are in both. */
          mine = (h == 0 -> 0 : shares[AT(a, 0)]) | (h == 4 -> 0 : shares[AT(a, 1)]);
          masks = (h == 0 -> shares[AT(a, 0)] : 0) | (h == 4 -> shares[AT(a, 1)] : 0);
          mine = (mine | CORRUPT) & HOLDERS(h);
          masks = (masks | CORRUPT) & HOLDERS(h);
          if
          :: SIZE(mine) >= T && SIZE(masks) >= T -> both = 1
          :: else
          fi;
          if
          :: SIZE(mine) >= T -> sum = sum | BIT(h)
          :: SIZE(mine) < T && SIZE(masks) < T -> whole = 0
          :: else
          fi; h++
       :: else -> break
       od;
       sum = sum | CORRUPT;
       if
       :: whole ->
          if
          :: !(sum == SET(0) && shares[AT(a, 0)]) && !(sum == SET(1) && shares[AT(a, 1)]) ->
             unagreed = 1
          :: else
          fi;
          if
          :: first && first != sum -> differ = 1
          :: else -> first = sum
          fi
       :: else
       fi; a++
    :: else -> break
    od;
    assert(!both);
    assert(!unagreed);
    assert(!differ);
    h = 0; a = 0; s = 0; mine = 0; masks = 0; sum = 0; first = 0; whole = 0
  }
}

active proctype adversary() {
  do
  :: atomic {
       select(h : 0 .. 6);
       select(a : 0 .. 1);
       select(s : 0 .. 1);
       if
       :: HONEST(h) && IS(h, SET(s) & WITNESSES) && !SIGNED_OTHER(h, a, s) && MAY_REVEAL(h, s) ->
          signatures[AT(a, s)] = signatures[AT(a, s)] | BIT(h)
       :: HONEST(h) && IS(h, SET(s)) && AGREED(h, a, s) && MAY_REVEAL(h, s) ->
          shares[AT(a, s)] = shares[AT(a, s)] | BIT(h)
       :: else
       fi;
       check()
     }
  od
}
