/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way back. Where others fill the queue of the other direction, acknowledgements wait in it. Round trips are longer then by a queue
 * that is not ours, and a window of the smallest round trip no longer fills the path.
 *
 * TCP's timestamps (RFC 7323, section 3) carry the time at which the receiver sent an acknowledgement. What its clock is behind ours
 * grows by what the acknowledgement waits, whatever the clocks' difference is; what the data waits changes nothing. Clocks drift by
 * less than a millisecond in the ten seconds after which everything is measured anew (model.h).
 *
 * Most clocks count milliseconds; RFC 7323 allows others. An acknowledgement cannot wait for longer than the round trip has grown: a
 * clock that says so counts something else, and is not believed. Nothing is lost without it: `back` is 0.
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

/* How long this acknowledgement has waited on its way back, us; 0 where its round trip is no longer than it is without. */
static __always_inline __u32 waited_back(struct pace *pace, const struct pace_socket *socket, __u32 longer_us)
{
	__u16 behind_ms = peer_is_behind(socket);
	__s16 waited_ms = (__s16)(behind_ms - pace->behind_ms);
	__u32 slack_us = BACK_SLACK_US + (pace->min_rtt_us >> 3), waited_us;

	/* Less than nothing, or longer than can be: what was taken for no wait is none of this clock's. */
	if (waited_ms < 0 || (__u32)waited_ms * 1000 > longer_us + slack_us) {
		pace->behind_ms = behind_ms;
		return 0;
	}
	waited_us = (__u32)waited_ms * 1000;
	return waited_us > slack_us ? least(waited_us - BACK_SLACK_US / 2, longer_us) : 0;
}

/* A round trip has ended. It takes a few until a wait counts whole: acknowledgements that come in lumps wait for different times. */
static __always_inline void judge_way_back(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample)
{
	__u32 rtt_us, most_us, waited_us;

	if (pace->min_rtt_us == UNKNOWN || sample->rtt_us <= 0)
		return;
	if (!socket->peer_ms || pace->min_rtt_us < BACK_RTT_LEAST_US || is_published(pace)) {
		pace->back = 0;
		return;
	}
	rtt_us = sample->rtt_us > RTT_MAX_US ? RTT_MAX_US : (__u32)sample->rtt_us;
	waited_us = waited_back(pace, socket, rtt_us > pace->min_rtt_us ? rtt_us - pace->min_rtt_us : 0);
	most_us = 2 * back_us(pace) + most(pace->min_rtt_us >> 2, 1 << 12);
	pace->back = (__u8)least(least(waited_us, most_us) >> 12, 0xff);
}

#endif
