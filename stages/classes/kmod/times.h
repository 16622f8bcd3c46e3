/* SPDX-License-Identifier: GPL-2.0 */
/* A histogram of response times: buckets at most a sixteenth of their value wide, see uapi.h. */
#ifndef TARN_CLASSES_TIMES_H
#define TARN_CLASSES_TIMES_H

#include <linux/bitops.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>

#include "uapi.h"

/* The bucket of a time in nanoseconds. */
static inline u32 times_bucket(u64 nanoseconds)
{
	u64 microseconds = div_u64(nanoseconds, 1000);
	u32 exponent, bucket;

	if (microseconds < 16)
		return microseconds;
	exponent = fls64(microseconds) - 1;	/* 4 and more */
	bucket = 16 * (exponent - 3) + (u32)(microseconds >> (exponent - 4)) - 16;
	return min_t(u32, bucket, TARN_CLASSES_TIMES - 1);
}

#endif
