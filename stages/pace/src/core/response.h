/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The response to a drop of the bandwidth.
 *
 * While packets wait at the bottleneck, acknowledgements come at its rate, or at our share of it. So a rate below the estimate while
 * round trips grow means that the bottleneck has become slower; a low rate while they do not, that we have sent less, and a long
 * round trip that does not grow is a queue that has been there before. An epoch is as long as it takes to tell: a quarter of the
 * smallest round trip and six packets.
 *
 * Then the estimate is this rate, and less than it is sent until the queue has gone. Before the rate had dropped, about the old
 * product was in flight, and it all arrives at the slower bottleneck: no sender can keep the round trip below the smallest one
 * times old rate by new rate. What it can do is to add nothing to it.
 *
 * A silence is no drop: a radio that saves power or scans answers late, and then all at once. So an epoch that holds one says nothing,
 * and none lowers the estimate to less than a quarter.
 */
#ifndef TARN_PACE_RESPONSE_H
#define TARN_PACE_RESPONSE_H

#include "back.h"
#include "model.h"

#define EPOCH_US 2000
#define EPOCH_PACKETS 6
#define SHALLOW 512		/* twice the product: a buffer of one product */
#define MARGIN_US 1500		/* round trips differ by that much without a queue */
#define ONE_EPOCH_WILL_DO 154	/* 0.6: of a lower rate than that no second epoch is asked */

static __always_inline void begin_epoch(struct pace *pace, const struct pace_socket *socket)
{
	pace->epoch_us = (__u32)socket->now_us | 1;	/* 0: there is none */
	pace->epoch_delivered = socket->delivered;
	pace->epoch_rtt_us = UNKNOWN;
	pace->silent = 0;
}

/* Whether an epoch of `rate` and smallest round trip `rtt_us` says that the bandwidth has dropped. */
static __always_inline int is_drop(const struct pace *pace, const struct pace_parameters *parameters,
				   const struct pace_socket *socket, __u32 rate, __u32 rtt_us)
{
	__u64 whole = (__u64)estimate(pace) * parameters->drop_below;

	if ((__u64)rate * GAIN_ONE >= whole)
		return 0;
	/* Where a buffer of a product or less loses packets, its queue is short, and less is sent already. */
	if (pace->bound && pace->bound <= product(pace, estimate(pace), SHALLOW))
		return 0;
	if (rtt_us <= rtt_above(pace, parameters->queue_margin, MARGIN_US) + held_us(pace))
		return 0;
	if (pace->round_before_rtt_us != UNKNOWN &&
	    rtt_us <= pace->round_before_rtt_us + (((__u64)path_us(pace) * parameters->queue_rise) >> 8) + held_us(pace))
		return 0;
	if (socket->in_flight <= product(pace, rate, GAIN_ONE))
		return 0;
	/* Acknowledgements come in lumps: a small drop is one if the epoch before was low, too. */
	return (__u64)rate * GAIN_ONE < (__u64)estimate(pace) * ONE_EPOCH_WILL_DO ||
	       (__u64)pace->epoch_rate * GAIN_ONE < whole + (__u64)estimate(pace) * (GAIN_ONE / 16);
}

static __always_inline void lower_estimate(struct pace *pace, __u32 rate)
{
	restart_estimate(pace, most(rate, estimate(pace) >> 2 | 1));
}

/*
 * What a response does at the end of an epoch of `rate`, `before` that of the epoch before; 1 when the queue has gone. `sampled` is the
 * rate of this acknowledgement's sample, over a whole round trip: what acknowledgements that come all at once seem to say is not
 * much more than that.
 */
static __always_inline int go_on_responding(struct pace *pace, const struct pace_parameters *parameters,
					    const struct pace_socket *socket, __u32 rate, __u32 before, __u32 sampled, __u32 rtt_us)
{
	__u32 more = least(rate, sampled + (sampled >> 2));

	if (more > 2 * estimate(pace))
		restart_estimate(pace, more);
	if (rtt_us <= rtt_above(pace, parameters->queue_margin, MARGIN_US) ||
	    socket->in_flight <= product(pace, estimate(pace), GAIN_ONE))
		return 1;
	if (more > estimate(pace))
		restart_estimate(pace, more);
	else if (most(rate, before) < estimate(pace))
		lower_estimate(pace, most(rate, before));
	return 0;
}

/*
 * Looks at an acknowledgement, whose sample has the rate `sampled`; changes the state to STATE_RESPONSE
 * when the bandwidth has dropped. Returns 1 when a response has ended, so that the cycle begins.
 */
static __always_inline int respond(struct pace *pace, const struct pace_parameters *parameters, struct pace_socket *socket,
				   const struct pace_sample *sample, __u32 sampled)
{
	__u32 took = (__u32)socket->now_us - pace->epoch_us, packets, rate, before, rtt_us;

	/* Mostly it is not over yet. Acknowledgements often come in the same microsecond, and an epoch may begin one later than its first. */
	if (took + 1 <= pace->min_rtt_us >> 2)
		return 0;
	if (!pace->epoch_us || (__s32)took <= 0 || (pace->silent && pace->state != STATE_RESPONSE)) {
		begin_epoch(pace, socket);
		return 0;
	}
	packets = socket->delivered - pace->epoch_delivered;
	if (pace->min_rtt_us == UNKNOWN)
		return 0;
	if ((took < most(most(pace->min_rtt_us >> 2, EPOCH_US), 2 * held_us(pace)) || packets < EPOCH_PACKETS) &&
	    took < most(pace->min_rtt_us, 2 * held_us(pace)))
		return 0;
	rate = rate_of(packets, took);
	before = pace->epoch_rate;
	rtt_us = pace->epoch_rtt_us;
	begin_epoch(pace, socket);
	if (rtt_us == UNKNOWN) {
		pace->epoch_rate = rate;
		return 0;
	}
	if (pace->state == STATE_RESPONSE) {
		pace->epoch_rate = rate;
		return go_on_responding(pace, parameters, socket, rate, before, sampled, rtt_us);
	}
	if (pace->state == STATE_PROBE && pace->competing < COMPETING && !sample->app_limited &&
	    is_drop(pace, parameters, socket, rate, rtt_us) && !is_short_there(pace, parameters, socket, sample)) {
		pace->state = STATE_RESPONSE;
		lower_estimate(pace, rate);
	}
	pace->epoch_rate = rate;
	return 0;
}

#endif
