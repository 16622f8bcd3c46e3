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
	/* Of the samples since the last change. */
	u32 samples;
	u64 sum;		/* ns */
	bool was_reached;	/* since the last change, requests had to wait for others */
	u64 unloaded;		/* ns: the least mean seen */
};

void limit_set(struct limit *limit, u32 fixed);

/* An answer came so long after its request was handed on. */
void limit_sample(struct limit *limit, u64 nanoseconds);

#endif
