/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many requests the service has at a time. More than it can work on wait in its own queue, where the class no longer
 * counts. Either the administrator says how many, or it is found: see finding.c. And how long an answer takes, in general.
 */
#ifndef TARN_CLASSES_LIMIT_H
#define TARN_CLASSES_LIMIT_H

#include "finding.h"

struct limit {
	u32 fixed;		/* 0: find it */
	u32 now;		/* requests, 1 to LIMIT_MOST */
	u64 service;		/* ns, smoothed: from handing on to the answer */
	u64 deviation;		/* ns, smoothed: of single answers from it */
	u64 began;		/* ns: when the answers began that are not in both yet: so many, the sum of their times, and of their deviations */
	u32 answers;
	u64 sum, off;
	u32 backoff;		/* doublings of limit_likely() since the last answer */
	u64 backed_off;		/* ns: when it was doubled last */
	struct finding finding;	/* while `fixed` is 0 */
};

/* The limit as it is given; 0: it is to be found, from none at all on. */
void limit_set(struct limit *limit, u32 fixed);

/*
 * An answer leaves at `now`. Its request was handed on at `handed_on`, and had a place since, but for no longer than `at_most`, ns; its
 * client has sent something of it at `heard` still; so many others have places still. Returns whether there is a limit from now on, and
 * was none before.
 */
bool limit_answer(struct limit *limit, u64 handed_on, u64 heard, u64 at_most, u32 inside, u64 now);

/* How long the service works on a request, in ns, whether or not anybody awaits the answer. */
u64 limit_usual(const struct limit *limit);

/* A request waits for others. */
static inline void limit_reached(struct limit *limit)
{
	limit->finding.was_reached = true;
}

/* A request that was handed on has had no answer for as long as anybody would wait for one. */
static inline void limit_lost(struct limit *limit)
{
	finding_lost(&limit->finding);
}

/* Whether there was no limit yet when a request was handed on, or there is none. */
static inline bool limit_was_open(const struct limit *limit, u64 handed_on)
{
	return !limit->fixed && (limit->now >= LIMIT_MOST || handed_on < limit->finding.limited_since);
}

/* How long after its being handed on nearly every request is answered, in ns. */
u64 limit_nearly_all(const struct limit *limit);

/* How long after its being handed on an answer is likely still, in ns. */
u64 limit_likely(const struct limit *limit);

/* A request that was handed on then has just become overdue, and others like it were answered. */
void limit_back_off(struct limit *limit, u64 handed_on, u64 now);

#endif
