// SPDX-License-Identifier: GPL-2.0
/*
 * See limit.h. Finding the limit is TCP Vegas's idea (Brakmo and Peterson, 1995), as others use it for services: a
 * service that works on c requests at a time answers in the time T that it needs for one as long as it has at most c of
 * them; with more, n, it takes T * n / c. So n * (1 - T/R) of them, for the present mean R, wait inside. That many should
 * be few, but not none, or the service would be idle between an answer and the next request.
 *
 * Means are over as many samples as the limit, at least SAMPLES: response times of single requests vary too much. T is
 * the least mean seen; it is raised a little at each step, so that a service that has become slower is believed after a
 * while.
 */
#include <linux/math64.h>
#include <linux/minmax.h>

#include "limit.h"

#define SAMPLES 64
#define LIMIT_FIRST 16
#define WAITING_LEAST 1		/* in the service: fewer, and it gets more */
#define WAITING_MOST 3
#define FORGET_SHIFT 8		/* T rises by 1/256 a step */
#define SMOOTH_SHIFT 4		/* `service`: the last 16 answers or so */

void limit_set(struct limit *limit, u32 fixed)
{
	limit->fixed = fixed;
	if (fixed)
		limit->now = min_t(u32, fixed, LIMIT_MOST);
	else if (!limit->now)
		limit->now = LIMIT_FIRST;
}

/* The mean of a step: what it says about the limit. */
static void step(struct limit *limit, u64 mean)
{
	u64 waiting;

	limit->unloaded += limit->unloaded >> FORGET_SHIFT;
	if (!limit->unloaded || mean < limit->unloaded)
		limit->unloaded = max_t(u64, mean, 1);
	/* Without requests waiting here, the limit was not what kept the service from having more. */
	if (!limit->was_reached)
		return;
	waiting = div64_u64(limit->now * (mean - limit->unloaded), mean);
	if (waiting < WAITING_LEAST)
		limit->now = min_t(u32, limit->now + 1, LIMIT_MOST);
	else if (waiting > WAITING_MOST)
		limit->now = max_t(u32, limit->now - 1, 1);
}

void limit_sample(struct limit *limit, u64 nanoseconds)
{
	/* At most an hour, so that neither sums nor products overflow: 2^42 * 2^17 samples. */
	nanoseconds = clamp_t(u64, nanoseconds, 1, 1ULL << 42);
	if (!limit->service)
		limit->service = nanoseconds;
	limit->service += (nanoseconds >> SMOOTH_SHIFT) - (limit->service >> SMOOTH_SHIFT);
	limit->sum += nanoseconds;
	if (++limit->samples < max_t(u32, SAMPLES, limit->now))
		return;
	if (!limit->fixed)
		step(limit, div_u64(limit->sum, limit->samples));
	limit->samples = 0;
	limit->sum = 0;
	limit->was_reached = false;
}
