/* SPDX-License-Identifier: GPL-2.0 */
/* The bounds of ../uapi.h. */
#ifndef TARN_REASSEMBLY_LIMITS_H
#define TARN_REASSEMBLY_LIMITS_H

#include <linux/time64.h>

#define MEMORY_LEAST (256ULL << 10)
#define MEMORY_MOST (256ULL << 20)
#define SHARE_LEAST 2
#define SHARE_MOST 64
#define SHARE_DEFAULT 8
#define TIMEOUT_LEAST (100ULL * NSEC_PER_MSEC)
#define TIMEOUT_MOST (120ULL * NSEC_PER_SEC)

#endif
