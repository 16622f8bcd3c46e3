/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The published measure of a path, in fixed point (Korean blog post of December 2025 about ECMP that looks at the paths):
 *
 *	rate           = bytes / elapsed jiffies since the last update	(none when 0 jiffies have passed)
 *	ema_load       = EMA(ema_load, rate)				how busy
 *	ema_time_delta = EMA(ema_time_delta, |rate - ema_load|)		how uneven
 *	EMA(old, new)  = (K * new + (1024 - K) * old) / 1024
 *
 * As published, an update knows the bytes of its own packet only, what is sent within a jiffy is not counted, and a rate counts
 * the same over whatever time it was. Here all bytes since the last update make the rate, which is taken into the averages once
 * for each jiffy: packets that come two and three jiffies after one another would otherwise make 4 % more than is sent.
 *
 * Averages are kept as 1024 times what they are: of whole bytes, each step would lose up to one, and an average up to 1024 / K.
 *
 * No overflow: at most 2^40 bytes are counted in a jiffy (2 Tbit/s at 250 jiffies a second are below 2^30), so an average is at
 * most 2^50, and K times it at most 2^60.
 */
#ifndef TARN_PATHS_LOAD_H
#define TARN_PATHS_LOAD_H

#include "shared.h"

#define BYTES_MOST (1ULL << 40)
/* Of a pause, so many jiffies count: it is bounded for the verifier, and from K = 16 on less than 0.1 % is left after them. */
#define STEPS_MOST 512

static __always_inline __u64 ema(__u64 k, __u64 old, __u64 new)
{
	return (k * new + (ONE - k) * old) / ONE;
}

/* Takes a rate, times ONE, into the averages. */
static __always_inline void update_load(struct path_load *path, __u64 rate, __u64 k)
{
	path->load = ema(k, path->load, rate);
	path->unevenness = ema(k, path->unevenness, rate > path->load ? rate - path->load : path->load - rate);
}

/* Takes what was sent in the elapsed jiffies, at least one, into the averages. */
static __always_inline void update_loads(struct path_load *path, __u64 elapsed, __u64 k)
{
	__u64 bytes = path->bytes < BYTES_MOST ? path->bytes : BYTES_MOST;
	__u64 rate = bytes * ONE / elapsed;

	for (__u32 step = 0; step < STEPS_MOST && step < elapsed; step++)
		update_load(path, rate, k);
}

#endif
