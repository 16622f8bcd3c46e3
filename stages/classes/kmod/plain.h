/* SPDX-License-Identifier: GPL-2.0 */
/* The few things of the kernel that files need which are compiled for user space, too, where they are tested. */
#ifndef TARN_CLASSES_PLAIN_H
#define TARN_CLASSES_PLAIN_H

#include <linux/types.h>

#ifdef __KERNEL__
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/time64.h>
#else
#include <stdbool.h>

typedef __u32 u32;
typedef __u64 u64;

#define NSEC_PER_USEC 1000UL
#define NSEC_PER_MSEC 1000000UL
#define NSEC_PER_SEC 1000000000UL

#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define clamp(value, least, most) min(max(value, least), most)

static inline u64 div_u64(u64 dividend, u32 divisor)
{
	return dividend / divisor;
}

static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}
#endif

#endif
