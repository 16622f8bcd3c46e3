/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The published response: the "Mountain Kernel" change to BBR (6.12), with the names and units of its author.
 *
 * When a sample of the bandwidth is below the estimate,
 *
 *     delta = (old_bw - bw) * 256 / max_bw,  reduction = min(delta * BW_DELTA_ALPHA >> 8, BW_DELTA_CEILING)
 *
 * the pacing gain is multiplied by (256 - reduction) / 256, and when what is left is below BW_DELTA_FLOOR, the window is reduced.
 *
 * As its text has it, neither has an effect: with the author's constants (128, 64, 192) what is left is at least 192, which is not
 * below 192, and the gain is overwritten before the pace is set by it. Repaired, the gain sets the pace, and the window is reduced,
 * to three quarters of the product, from BW_DELTA_FLOOR down.
 */
#ifndef TARN_PACE_PUBLISHED_H
#define TARN_PACE_PUBLISHED_H

#include "model.h"

#define REDUCED_WINDOW 192

/* How much of the pacing gain a sample leaves, in parts of 256. `before` is the estimate without the sample, `now` with it. */
static __always_inline __u32 published_gain(const struct pace_parameters *parameters, __u32 sample, __u32 before, __u32 now)
{
	__u64 reduction;

	if (sample >= before || !now)
		return GAIN_ONE;
	/* Below 2^(30 + 8 + 10). */
	reduction = ((((__u64)(before - sample) << 8) / now) * parameters->bw_delta_alpha) >> 8;
	return GAIN_ONE - (reduction < parameters->bw_delta_ceiling ? (__u32)reduction : parameters->bw_delta_ceiling);
}

static __always_inline int is_published(const struct pace *pace)
{
	return pace->response == RESPONSE_PUBLISHED || pace->response == RESPONSE_PUBLISHED_REPAIRED;
}

/* Whether the window is reduced. */
static __always_inline int published_reduces(const struct pace *pace, const struct pace_parameters *parameters, __u32 gain)
{
	return pace->response == RESPONSE_PUBLISHED ? gain < parameters->bw_delta_floor : gain <= parameters->bw_delta_floor;
}

#endif
