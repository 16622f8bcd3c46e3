/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What losses and marks say of the buffer: a bound of what is in flight.
 *
 * A round trip in which more than a share of the packets are lost has overrun a buffer (or a policer). As in BBRv3 the bound is then
 * what was in flight, at least 0.85 of the product, and it grows again by an eighth a round trip of probing without loss.
 *
 * A mark (ECN) is no chance: somebody who manages the queue asks every sender to send less (RFC 3168), and senders that do not take
 * what those that do give up. The bound is then 0.85 of what was in flight (RFC 8511 has 0.85 for CUBIC), however little that is.
 */
#ifndef TARN_PACE_BOUND_H
#define TARN_PACE_BOUND_H

#include "model.h"

#define LOSSES_BY_CHANCE 4	/* so many more than the share are chance: radio links lose up to 3 % */
#define BOUND_LEAST 218		/* 0.85 of the product */
#define BOUND_MARKED 218	/* 0.85 of what was in flight */
#define BOUND_MOST (1U << 22)	/* from there on it bounds nothing: 6 GB */
#define BOUND_FORGOTTEN 640	/* above 2.5 times the product it bounds nothing */

/*
 * Whether the receiver has echoed a mark, or this host's own queue has dropped a packet: the kernel then reduces the window until what
 * was under way is acknowledged (tcp_enter_cwr()).
 */
static __always_inline int is_marked(const struct pace *pace)
{
	return pace->ca_state == CA_CWR;
}

static __always_inline void lower_bound(struct pace *pace, __u32 bound)
{
	if (bound < (pace->bound ? pace->bound : BOUND_MOST))
		pace->bound = bound;
	pace->lost_round = 1;
}

/* Takes a round trip into account that has just ended, in which so many packets were lost and delivered. */
static __always_inline void bound_by_loss(struct pace *pace, const struct pace_parameters *parameters,
					  const struct pace_sample *sample, __u32 lost, __u32 delivered)
{
	/* Where little was in flight for want of data, that is no measure. */
	if (is_marked(pace) && !sample->app_limited) {
		lower_bound(pace, most(WINDOW_MIN, (__u32)(((__u64)sample->prior_in_flight * BOUND_MARKED) >> 8)));
		return;
	}
	if (parameters->loss_share && lost > LOSSES_BY_CHANCE && (__u64)(lost - LOSSES_BY_CHANCE) * parameters->loss_share > delivered) {
		lower_bound(pace, most(sample->prior_in_flight, product(pace, estimate(pace), BOUND_LEAST)));
		return;
	}
	if (pace->lost_round) {
		pace->lost_round = 0;
	} else if (pace->bound && pace->phase <= 1) {
		__u32 bound = pace->bound + (pace->bound >> 3) + 1;

		pace->bound = bound <= least(product(pace, estimate(pace), BOUND_FORGOTTEN), BOUND_MOST - 1) ? bound : 0;
	}
}

#endif
