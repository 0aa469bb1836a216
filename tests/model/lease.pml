/* The life of a record between workers: claim, renew, settle, crash, freeze, vanish, re-claim.
 *
 * Read it beside src/esclusa/model/decide.py: decide says what an outcome means, this says which
 * process may write one. `make model` checks the assertions and the claims at the end with Spin.
 * Then it checks each mutant, which changes one rule (#ifdef): that check must fail.
 *
 * There is no clock: a lease passes when its holder cannot renew it, however long that takes.
 * Record 0 is poison: its handler kills the process. The last record may fail TRIES - 1 times.
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define TRIES 2
#define POISON 0
#define FREE 0       /* nobody locks the row; 1 + w: the open transaction of worker w does */
#define FOREIGN 99   /* another program does */

mtype = { READY, HELD, DONE, EXHAUSTED }            /* the state of a record */
mtype = { NONE, WAITING, RUNNING, ANSWERED, SENT }  /* what a process does with it */
mtype = { TO, RETRY, OVER }                         /* its outcome; OVER: claimed, no try left */

typedef Row {           /* in the database */
    mtype state = READY;
    byte attempts;
    byte holder;        /* leased_by: the worker, and how it began: ... */
    byte mark;          /* ... /8 among other suspects, /1 alone, 0 neither */
    bool passed;        /* due_at has passed */
    bool kept;          /* esclusa.leases has a valid row of this fence */
    byte lock;
    bool lost           /* (*) the holder could not renew the lease */
}
typedef Held {          /* in the memory of a process, about one record */
    mtype work = NONE;
    mtype outcome;
    byte behind;        /* claims since its own, at most 2; 0: its fence is the record's fence */
    byte group;         /* of suspects: 8 or 1; 0: not a suspect */
    bool called, alone, stale   /* (*) its handler was called, nothing ran beside it since,
                                       the record was settled since */
}
typedef Process { bool frozen; Held held[RECORDS] }

Row row[RECORDS];
Process process[WORKERS];
byte failures[RECORDS], lone_losses[RECORDS];   /* (*) what may exhaust a record */
bool deaf;              /* the answer to the next commit is lost */

/* (*) for the assertions only */

hidden byte i, orphan, counts, over, group, may;       /* used within one step, so not part of a state */

#define mine      process[w].held[r]
#define beside    process[w].held[i]
#define begun(h)  (h.work == RUNNING || h.work == ANSWERED || h.work == SENT)
#define drop(h)   h.work = NONE; h.outcome = 0; h.behind = 0; h.group = 0; h.called = false; \
                  h.stale = false
#define holder_of process[row[r].holder]
#define renews    (!holder_of.frozen && holder_of.held[r].work != NONE && \
                   holder_of.held[r].behind == 0)

/* ---- a worker: claim, begin, answer, send, commit ---- */

/* A due record, or an orphan whose lease has passed. SKIP LOCKED passes over a locked row. */
#define claimable (row[r].lock == FREE && \
    (row[r].state == READY || (row[r].state == HELD && row[r].passed && !row[r].kept)))

/* The claim returned the very attempt that this process holds; nobody had it in between. */
#ifdef TAKES_OVER_ALL
#define takes_over (mine.work != NONE)
#elif defined(WORKS_AGAIN)
#define takes_over false
#else
#define takes_over (orphan && mine.work != NONE && mine.behind == 1)
#endif

/* The claim of an orphan counts only if the record was running alone. */
#ifdef ORPHANS_COUNT
#define counting true
#elif defined(CRASHES_NEVER_COUNT)
#define counting (!orphan)
#else
#define counting (!orphan || row[r].mark == 1)
#endif

#ifdef UNCOUNTED_IS_OVER
#define no_try_left (row[r].attempts >= TRIES)
#else
#define no_try_left (counts && row[r].attempts >= TRIES)
#endif

inline claim() {
    orphan = (row[r].state == HELD);
    assert(!orphan || row[r].lost);     /* a record with a holder that is well is left alone */
    counts = counting;
    over = no_try_left;
    group = (!orphan -> 0 : (row[r].mark == 0 -> 8 : 1));
    row[r].attempts = row[r].attempts + (counts && !over);
    row[r].state = HELD;
    row[r].holder = w;
    row[r].passed = false;
    row[r].kept = false;
    row[r].lost = false;
    for (i : 0 .. WORKERS - 1) {        /* fence = fence + 1 */
        process[i].held[r].behind = process[i].held[r].behind +
            (process[i].held[r].work != NONE && process[i].held[r].behind < 2)
    }
    if
    :: takes_over -> skip               /* it has the outcome or will have it: no second call */
    :: else ->
        mine.called = mine.called && orphan && mine.behind == 1;
        mine.work = (over -> ANSWERED : WAITING);
        mine.outcome = (over -> OVER : 0);
        mine.group = group;
        mine.stale = false
    fi;
    mine.behind = 0;
    row[r].mark = (over -> 1 : (group == 1 -> 8 : 0))
}

/* A suspect of group 1 is the only work of its process, from its begin until it is settled. If
 * another program locks its row, its outcome waits and the others go on. */
#define waits (beside.work == ANSWERED && row[i].lock == FOREIGN)
#ifdef NOT_ALONE
#define excludes false
#elif defined(ALONE_UNTIL_ANSWERED)
#define excludes (beside.work == RUNNING && (mine.group == 1 || beside.group == 1))
#else
#define excludes ((beside.work == RUNNING && mine.group == 1) || \
                  (begun(beside) && beside.group == 1 && !waits))
#endif

/* The mark of a suspect is written, with a renewal, before its handler is called. */
inline begin() {
    may = true;
    for (i : 0 .. RECORDS - 1) { may = may && !(i != r && excludes) }
    if
    :: !may || (mine.group != 0 && mine.behind == 0 && row[r].lock != FREE) -> skip   /* later */
    :: may && mine.group != 0 && mine.behind != 0 -> drop(mine)                       /* lost */
    :: else ->
        if
        :: mine.group != 0 -> row[r].mark = mine.group; row[r].passed = false;
            row[r].kept = false; row[r].lost = false
        :: else
        fi;
        assert(!mine.called);           /* no process calls twice for one attempt */
        mine.work = RUNNING;
        mine.called = true;
        mine.alone = true;
        for (i : 0 .. RECORDS - 1) {
            if
            :: i != r && begun(beside) ->
                beside.alone = beside.alone && waits;
                mine.alone = mine.alone && beside.work != RUNNING
            :: else
            fi
        }
    fi
}

inline answer(result) {
    mine.outcome = result;
    mine.work = ANSWERED;
    failures[r] = failures[r] + (result == RETRY)
}

/* BEGIN; UPDATE … WHERE fence = …: it finds and locks the row, or the lease is lost. */
#ifdef NO_FENCE
#define found (row[r].state == HELD)
#else
#define found (row[r].state == HELD && mine.behind == 0)
#endif

inline send() {
    may = (row[r].lock == FREE);
#ifdef BATCH_WAITS
    for (i : 0 .. RECORDS - 1) { may = may && !(beside.work == ANSWERED && row[i].lock != FREE) }
#endif
    if
    :: !may -> skip                             /* Locked: later; the others do not wait */
    :: may && found -> row[r].lock = 1 + w; mine.work = SENT
    :: else -> drop(mine)                       /* Lost */
    fi
}

inline commit() {
    if
    :: row[r].lock != 1 + w -> mine.work = ANSWERED     /* the server ended the session */
    :: else ->
        assert(row[r].holder == w);                     /* one holder */
        assert(!mine.stale);                            /* no stale settlement */
        row[r].state = (mine.outcome == TO -> DONE :
            (mine.outcome == OVER || row[r].attempts >= TRIES -> EXHAUSTED : READY));
        /* An innocent is exhausted only by its failures and by processes lost while it was alone. */
        assert(row[r].state != EXHAUSTED || r == POISON || failures[r] + lone_losses[r] >= TRIES);
        row[r].mark = 0;
        row[r].passed = false;
        row[r].lost = false;
        row[r].lock = FREE;
        for (i : 0 .. WORKERS - 1) {
            process[i].held[r].stale = (process[i].held[r].work != NONE)
        }
        if :: deaf -> mine.work = ANSWERED :: else -> drop(mine) fi;
        deaf = false
    fi
}

inline lose_memory() {
    for (i : 0 .. RECORDS - 1) { drop(beside) }
    skip
}

inline end_sessions() {
    for (i : 0 .. RECORDS - 1) { row[i].lock = (row[i].lock == 1 + w -> FREE : row[i].lock) }
    skip
}

#define awake    (!process[w].frozen)
#define may_fail (r == RECORDS - 1 && failures[r] < TRIES - 1)

proctype worker(byte w; byte r) {
end:
    do
    :: d_step { awake && claimable -> claim() }
    :: d_step { awake && mine.work == WAITING -> begin() }
    :: d_step { awake && mine.work == RUNNING && r == POISON -> lose_memory(); end_sessions() }
    :: d_step { awake && mine.work == RUNNING && r != POISON -> answer(TO) }
    :: d_step { awake && mine.work == RUNNING && r != POISON && may_fail -> answer(RETRY) }
    :: d_step { awake && mine.work == ANSWERED -> send() }
    :: d_step { awake && mine.work == SENT -> commit() }
    od
}

/* ---- time: leases pass or are renewed; the server ends idle transactions ---- */

#define writer process[row[r].lock - 1]

inline lost_lease() {
    row[r].lost = true;
    lone_losses[r] = lone_losses[r] +
        (row[r].mark == 1 && holder_of.held[r].alone && lone_losses[r] < TRIES)
}

proctype time(byte r) {
end:
    do
    :: d_step { row[r].state == HELD && !row[r].passed && !renews ->
        row[r].passed = true; row[r].kept = false; lost_lease() }
    :: d_step { row[r].state == HELD && row[r].kept && !renews -> row[r].kept = false; lost_lease() }
    :: d_step { row[r].state == HELD && row[r].passed && renews && row[r].lock == FREE ->
        row[r].passed = false; row[r].kept = false; row[r].lost = false }
    /* Another program locks the row: due_at cannot be written, so the lease is kept beside it. */
    :: d_step { row[r].state == HELD && !row[r].passed && renews && row[r].lock == FOREIGN ->
        row[r].passed = true;
#ifndef NO_LEASE_ROW
        row[r].kept = true
#endif
        }
#ifndef NO_SESSION_TIMEOUT
    :: d_step { row[r].lock != FREE && row[r].lock != FOREIGN &&
        (writer.frozen || writer.held[r].work != SENT) -> row[r].lock = FREE }
#endif
    od
}

/* ---- faults ---- */

proctype fault() {
    byte w, r;
    atomic {
        select(w : 0 .. WORKERS - 1);
        select(r : 0 .. RECORDS - 1);
        if
        :: lose_memory(); end_sessions()        /* SIGKILL */
        :: lose_memory()                        /* the machine vanishes: nobody ends its sessions */
        :: process[w].frozen = true             /* SIGSTOP, a blocked loop, a frozen network */
        :: deaf = true                          /* cut between COMMIT and its answer */
        :: row[r].lock == FREE -> row[r].lock = FOREIGN
        fi
    }
    d_step {                                    /* a frozen process and a locked row go on later */
        process[w].frozen = false;
#ifndef LOCKED_FOR_EVER
        row[r].lock = (row[r].lock == FOREIGN -> FREE : row[r].lock)
#endif
    }
}

init {
    byte n, m;
    atomic {
        for (m : 0 .. RECORDS - 1) {
            run time(m);
            for (n : 0 .. WORKERS - 1) { run worker(n, m) }
        }
        for (n : 0 .. FAULTS) { if :: n > 0 -> run fault() :: else fi }
    }
}

#define ended(m)       (row[m].state == DONE || row[m].state == EXHAUSTED)
#define passes(m)      (ended(m) || row[m].lock == FOREIGN)
#define each(property) (property(0) && property(1) && property(RECORDS - 1))

ltl finished { <> each(ended) }         /* nothing is lost: every record ends */
ltl neighbours { <> each(passes) }      /* one locked row holds up no other */
