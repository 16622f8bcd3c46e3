/* SPDX-License-Identifier: GPL-2.0 */
/* A histogram of response times: buckets at most a sixteenth of their value wide, see uapi.h. */
#ifndef TARN_CLASSES_TIMES_H
#define TARN_CLASSES_TIMES_H

#include <linux/types.h>

#include "uapi.h"

/* The bucket of a time in nanoseconds. */
u32 times_bucket(u64 nanoseconds);

#endif
