/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many requests the service has at a time. More than it can work on wait in its own queue, where the class no longer
 * counts. Either the administrator says how many, or it is found: see limit.c.
 */
#ifndef TARN_CLASSES_LIMIT_H
#define TARN_CLASSES_LIMIT_H

#include <linux/types.h>

#define LIMIT_MOST 16384

struct limit {
	u32 fixed;		/* 0: find it */
	u32 now;		/* requests, 1 to LIMIT_MOST */
	u64 service;		/* ns, smoothed: from handing on to the answer */
	u64 deviation;		/* ns, smoothed: of single answers from it */
	u32 backoff;		/* doublings of limit_likely() since the last answer */
	u64 backed_off;		/* ns: when it was doubled last */
	/* Finding it: a step is so many answers under one limit. */
	u32 to_skip;		/* answers that are still of the limit before */
	u32 samples;
	u64 sum;		/* ns */
	bool was_reached;	/* in this step, requests had to wait for others */
	bool is_starting;	/* it doubles until requests wait inside */
	u32 steps;		/* since `unloaded` was measured */
	u32 probed;		/* the limit to go back to after measuring it; 0: not measuring */
	u64 unloaded;		/* ns: what the service needs when nothing waits inside */
};

void limit_set(struct limit *limit, u32 fixed);

/* An answer came so long after its request was handed on. */
void limit_sample(struct limit *limit, u64 nanoseconds);

/* How long after its being handed on nearly every request is answered, in ns. */
u64 limit_nearly_all(const struct limit *limit);

/* How long after its being handed on an answer is likely still, in ns. */
u64 limit_likely(const struct limit *limit);

/* A request that was handed on then has just become overdue, and others like it were answered. */
void limit_back_off(struct limit *limit, u64 handed_on, u64 now);

#endif
