/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Finds how many requests a service should have at a time: see finding.c. Nothing here depends on the kernel, so that the same code
 * is tried on simulated services in user space.
 */
#ifndef TARN_CLASSES_FINDING_H
#define TARN_CLASSES_FINDING_H

#include "plain.h"

#define LIMIT_MOST 16384	/* requests; as a limit: none */

struct finding {
	u32 now;		/* the limit, requests: 2 to LIMIT_MOST */
	u64 deadline;		/* ns: the shortest of the classes; 0: not known, and nothing is limited */
	bool was_reached;	/* requests had to wait for others, in this round */

	/* A round: so many answers under one limit. */
	u64 began;		/* ns: 0 before the first answer; later by as long as nothing was inside */
	u64 idle_since;		/* ns: nothing is inside; 0: something is */
	u32 to_skip;		/* answers that are still of the limit before, about */
	u64 settled;		/* ns: when those that were handed on before have been answered, too */
	u32 answers;
	u32 slow;		/* of them: those that took so long that requests are late */
	u64 sum;		/* ns: for how long they had a place */
	u32 lost;		/* requests that nobody will answer */
	bool was_asked;		/* whether it is plainly worse than before */
	u64 longest;		/* ns: that it took from handing one on to its answer, overdue or not */
	u32 long_answers;	/* those that took more than twice what is aimed at, */
	u64 longer;		/* and how much longer, ns, in all */

	/* Smoothed over answers, ns: how long one takes, overdue or not, and for how long its request has a place. */
	u64 late, held;

	u32 rounds;		/* since the limit was lowered */
	u32 unreached;		/* rounds in a row in which no request had to wait */

	/* What the service needs for an answer when nothing waits inside, at most: ns; 0: not known. */
	u64 needs;
	u64 group_sum;		/* of the last `group` answers */
	u32 group;

	/* ns between answers where many come one after the other; the last that such a run began with, by number and by time. */
	u64 quickest, run_began;
	u32 run;

	u64 last, gap_mean, spread;	/* ns: the last answer; gaps between answers, smoothed, and their deviation */
	u64 pause;		/* ns: about the longest gap lately while something was inside */

	u64 stands_since;	/* ns: without a limit, a queue does harm; 0: it does not */
	u64 limited_since;	/* ns: when there was no limit before, last; 0: there has been none */
	u64 dropped_at;		/* ns: what answers took when requests were dropped; 0: they were not */
	u32 stood;		/* answers since then */
	u64 gap_open;		/* ns between answers then */
	u64 gap_limited;	/* ns between answers under a limit that has just been given up; 0: that is settled */

	/* A limit cost answers where there was none: none is tried before then, and after that not for so long, ns. */
	u64 not_before, patience;

	/* The limit was lowered or raised before this round, from `before`, when an answer left every `gap_before` ns, after `mean_before`. */
	bool was_lowered, was_raised;
	bool was_open;		/* there was no limit before */
	u32 floor;		/* a lower limit than this cost answers lately */
	u32 before;
	u64 gap_before, mean_before;
	u64 gap;		/* ns between answers, smoothed over rounds; 0: not known */
	u64 gap_least;		/* about the least of that lately */
};

/* Begins without a limit. */
void finding_begin(struct finding *finding);

/* A request that was handed on has had no answer for as long as anybody would wait for one. */
static inline void finding_lost(struct finding *finding)
{
	finding->lost++;
}

/*
 * An answer left at `now`, of a request that was handed on at `handed_on` and had a place for so long, and `inside` requests have one
 * still. Times are in ns and below 2^62; `took` is 1 to 2^42.
 */
void finding_answer(struct finding *finding, u64 took, u64 handed_on, u32 inside, u64 now);

#endif
