/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way back. Where others fill the queue of the other direction, acknowledgements wait in it. Round trips are longer then by a queue
 * that is not ours, and a window of the smallest round trip no longer fills the path.
 *
 * TCP's timestamps (RFC 7323, section 3) carry the time at which the receiver sent an acknowledgement. By how much its clock is behind
 * ours grows by what the acknowledgement waits, whatever the clocks' difference is; what the data waits changes nothing. Ten seconds
 * later all is measured anew (model.h): clocks that drift or are slewed by 500 ppm differ by 5 ms then.
 *
 * Most clocks count milliseconds; RFC 7323 allows others. An acknowledgement cannot wait for longer than the round trip has grown: a
 * clock that says so counts something else, and is not believed. Without it, `back` is 0, as if this file were not there.
 *
 * A receiver that lies can have its own path's queue filled, a little more each round trip, up to what a second of the rate brings. It
 * can have that by acknowledging what has not come yet, too.
 */
#ifndef TARN_PACE_BACK_H
#define TARN_PACE_BACK_H

#include "model.h"
#include "published.h"

#define BACK_RTT_LEAST_US 4000	/* of a shorter round trip, milliseconds tell nothing */
#define BACK_SLACK_US 2000	/* rounding of both clocks */

/* How far the receiver's clock is behind ours, ms; differences are below half a minute. */
static __always_inline __u16 peer_is_behind(const struct pace_socket *socket)
{
	return (__u16)(socket->now_us / 1000 - socket->peer_ms);
}

/* This acknowledgement had the smallest round trip: on its way back nothing waited, as far as is known. */
static __always_inline void begin_way_back(struct pace *pace, const struct pace_socket *socket)
{
	pace->back = 0;
	pace->behind_ms = peer_is_behind(socket);
}

/* Whether the receiver's clock can tell anything. `socket` has been looked at closer. */
static __always_inline int is_told(const struct pace *pace, const struct pace_socket *socket)
{
	return socket->peer_ms && pace->min_rtt_us != UNKNOWN && pace->min_rtt_us >= BACK_RTT_LEAST_US && !is_published(pace);
}

/* By how much a round trip is longer than the smallest, us. */
static __always_inline __u32 longer_us(const struct pace *pace, const struct pace_sample *sample)
{
	__u32 rtt_us = sample->rtt_us > RTT_MAX_US ? RTT_MAX_US : (__u32)sample->rtt_us;

	return rtt_us > pace->min_rtt_us ? rtt_us - pace->min_rtt_us : 0;
}

/*
 * How long this acknowledgement has waited on its way back, us; UNKNOWN if it has waited for less than nothing, or for longer than the
 * round trip, `longer` than the smallest, allows.
 */
static __always_inline __u32 waited_back(const struct pace *pace, const struct pace_socket *socket, __u32 longer)
{
	__s16 waited_ms = (__s16)(peer_is_behind(socket) - pace->behind_ms);
	__u32 slack_us = BACK_SLACK_US + (pace->min_rtt_us >> 3), waited_us = (__u32)waited_ms * 1000;

	if (waited_ms < 0 || waited_us > longer + slack_us)
		return UNKNOWN;
	return waited_us > slack_us ? least(waited_us - BACK_SLACK_US / 2, longer) : 0;
}

/*
 * A round trip has ended. It takes a few until a wait counts whole. What acknowledgements wait for each other, because a link gathers
 * them, is in held_us() already.
 */
static __always_inline void judge_way_back(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample)
{
	__u32 most_us = 2 * back_us(pace) + most(pace->min_rtt_us, 1 << 12), waited_us;

	if (sample->rtt_us <= 0)
		return;
	if (!is_told(pace, socket)) {
		pace->back = 0;
		return;
	}
	waited_us = waited_back(pace, socket, longer_us(pace, sample));
	if (waited_us == UNKNOWN) {
		pace->behind_ms = peer_is_behind(socket);
		waited_us = 0;
	}
	waited_us -= least(waited_us, held_us(pace));
	pace->back = (__u8)least(least(waited_us, most_us) >> 12, 0xff);
}

/* Whether this round trip, without what its acknowledgement has waited on its way back, tells of no queue. */
static __always_inline int is_short_there(const struct pace *pace, const struct pace_parameters *parameters, struct pace_socket *socket,
					  const struct pace_sample *sample)
{
	__u32 longer, waited_us, margin_us;

	if (sample->rtt_us <= 0)
		return 0;
	PACE_LOOK_CLOSER(socket);
	if (!is_told(pace, socket))
		return 0;
	longer = longer_us(pace, sample);
	waited_us = waited_back(pace, socket, longer);
	margin_us = most(((__u64)pace->min_rtt_us * parameters->queue_margin) >> 8, BACK_SLACK_US);
	return waited_us != UNKNOWN && longer - waited_us <= margin_us + held_us(pace);
}

#endif
