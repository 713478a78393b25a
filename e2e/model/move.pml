/* move.pml - planned and cancelled moves: self-seal, hand-over, go; cancel, and resume by an ordinary claim.
   One partition, ordinary takeovers at any time beside the moves. The owner stops appends, waits for its acks, links its own SEAL and hands
   over (epoch, end); the successor, warm on what it read before, claims the name after that SEAL. Messages come late, or never,
   and a move may be cancelled at any time: the old owner then leads again by an ordinary claim.
   Run:  spin -a move.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Properties: acked <= seal; one SEAL an epoch; whoever opens does so behind the sealed end of all older epochs.

   The protocol: the content that is handed over is a hint. Only the chain counts: the go names the SEAL record, the CLAIM goes to the
   name after it, and EEXIST there means: list again, an ordinary takeover. What was read before the SEAL is verified against it.

   Mutants:
     V1  EEXIST on the name after the SEAL: takes the next free name, keeps the end it was handed
     V2  a cancelled owner goes on in the epoch it sealed       V3  the SEAL is linked while a batch is not answered yet, which is acked later
     V4  hand-over without a SEAL; the successor seals at the end it was handed, without a fence, and a cancelled owner goes on
     V5  the successor opens at the length it had read when warm, not at the seal
   Results (full searches, 0 errors; Spin 6.5.2, one core): 3 brokers 493 817 states, 4 s. States until a mutant violates: V1 92 975, V2 129, V3 107, V4 34 392, V5 2 702 */
#ifndef NB
#define NB 3
#endif
#ifndef MAXE
#define MAXE 3
#endif
#ifndef MAXB
#define MAXB 2
#endif
typedef Ep { unsigned own : 2; bool sealed; unsigned seal : 2; bool maybe; unsigned is : 2; unsigned srv : 2; unsigned acked : 2; };
Ep e[4]; unsigned last : 2; bool cur[NB]; bool fence[NB]; bool c1;
bool go; unsigned goep : 2; byte goend;      /* the release: epoch, and end of the log */
bool gofree;                                 /* ghost: nobody has appended since that SEAL */

#define ALLSEALED(m) ((m<2 || e[1].sealed) && (m<3 || e[2].sealed))
#define SUM(m) ((m<2 -> 0 : e[1].seal) + (m<3 -> 0 : e[2].seal))
#define FIRSTOPEN(m) ((m>1 && !e[1].sealed) -> 1 : ((m>2 && !e[2].sealed) -> 2 : 0))
#define TURN (b == 0 || (last > 0 && (b == 1 || c1)))
#define SEEN(i) (last < i -> 0 : (e[i].sealed -> e[i].seal : e[i].srv))
#define ACKOK(i) (!e[i].sealed || e[i].acked <= e[i].seal)
inline inv() { assert(ACKOK(1) && ACKOK(2) && ACKOK(3)) }
inline took() { gofree = false; if :: b != 0 -> cur[0] = false :: else fi; if :: b != 1 -> cur[1] = false :: else fi;
#if NB > 2
  if :: b != 2 -> cur[2] = false :: else fi
#endif
}
inline doseal(i, l) { assert(!e[i].sealed); e[i].sealed = true; e[i].seal = l; inv() }
inline doopen(at) { assert(ALLSEALED(my) && at == SUM(my)) }
#define QUIT my = 0; x = 0; L = 0; warm = 0; goto idle

proctype node(byte b) {
  unsigned my : 2; unsigned x : 2; unsigned L : 2; byte warm;
idle:
  if
  :: atomic { last < MAXE && TURN -> cur[b] = true }                          /* a lead hint: ordinary takeover */
  :: atomic { last > 0 && last < MAXE -> warm = SEEN(1) + SEEN(2) + SEEN(3) }  /* warm up on the log as it is, unsealed tail too */
     atomic { go && last < MAXE -> go = false; cur[b] = gofree;                               /* the go, late or at once */
       if
       :: !cur[b] ->
#ifdef V1
          cur[b] = true; took(); e[last].maybe = ALLSEALED(last); last++; my = last; e[my].own = b;
          doopen(goend); goto serve
#else
          cur[b] = true                                                        /* EEXIST: list again, from the start */
#endif
       :: cur[b] -> cur[b] = true;
          took(); e[last].maybe = ALLSEALED(last); last++; my = last; e[my].own = b; c1 = c1 || b==1;
#ifdef V4
          x = my - 1; if :: !e[x].sealed -> doseal(x, e[x].acked) :: else fi; x = 0; warm = 0; goto serve
#elif defined(V5)
          doopen(warm); warm = 0; goto serve
#else
          x = FIRSTOPEN(my); warm = 0;
          if :: x == 0 -> doopen(goend); goto serve :: else -> goto recover fi
#endif
       fi; warm = 0 }
  fi;
  atomic {
    if :: !cur[b] || last >= MAXE -> QUIT
       :: else -> took();
          if :: last > 0 -> e[last].maybe = ALLSEALED(last) :: else fi;
          last++; my = last; e[my].own = b; c1 = c1 || b==1; x = FIRSTOPEN(my);
          if :: x == 0 -> doopen(SUM(my)); goto serve :: else fi
    fi }
recover:
  if
  :: e[x].own == b -> atomic { L = e[x].acked; goto sealx }
  :: e[x].own != b && !e[x].maybe -> atomic { L = 0; goto sealx }
  :: e[x].own != b && e[x].maybe -> fence[e[x].own] = true
  fi;
  L = e[x].srv;
sealx:
  atomic {
    if :: cur[b] -> took(); doseal(x, L)
       :: else -> cur[b] = true; if :: last != my -> QUIT :: else fi
    fi;
    x = FIRSTOPEN(my); L = 0;
    if :: x == 0 -> doopen(SUM(my)) :: else -> goto recover fi }
serve:
  if
  :: atomic { e[my].is < MAXB -> e[my].is++ }
  :: goto release
  fi;
sync:
  if
  :: atomic { e[my].srv == e[my].is -> skip }
  :: goto selfseal                                                            /* error */
#ifdef V3
  :: atomic { cur[b] -> took(); doseal(my, e[my].acked); go = true; goep = my; goend = SUM(my) + e[my].seal; gofree = true }
     goto sync
#endif
  fi;
  if :: fence[b] -> goto fenced :: !fence[b] -> skip fi;
  atomic { e[my].acked = e[my].is; inv(); goto serve }
release:                             /* no append is under way any more, all are answered */
#ifdef V4
  atomic { go = true; goep = my; goend = SUM(my) + e[my].acked; gofree = cur[b] }
  if :: goto serve :: QUIT fi;       /* cancelled: goes on; or gone */
#else
  if
  :: goto serve                      /* cancelled before the SEAL */
  :: atomic { if :: cur[b] -> took(); doseal(my, e[my].acked); go = true; goep = my; goend = SUM(my) + e[my].seal; gofree = true
                 :: else fi }
#ifdef V2
     if :: goto serve :: skip fi;
#endif
     atomic { QUIT }                 /* a cancel from here on: the next hint is an ordinary claim */
  fi;
#endif
selfseal:
  atomic { if :: cur[b] -> took(); doseal(my, e[my].acked) :: else fi; QUIT }
fenced: atomic { my = 0; x = 0; L = 0 }
}
proctype net() {
end: do
  :: atomic { e[1].srv < e[1].is -> e[1].srv++ }
  :: atomic { e[2].srv < e[2].is -> e[2].srv++ }
  :: atomic { e[3].srv < e[3].is -> e[3].srv++ }
  od }
init { byte i; atomic { run net(); i = 0; do :: i < NB -> run node(i); i++ :: else -> break od; i = 0 } }
