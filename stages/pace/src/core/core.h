/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a connection does at its events. See pace.h.
 */
#ifndef TARN_PACE_CORE_H
#define TARN_PACE_CORE_H

#include "back.h"
#include "bound.h"
#include "model.h"
#include "published.h"
#include "response.h"
#include "window.h"

#define FULL_GROWTH 320		/* 1.25: less in three round trips, and STATE_STARTUP has found it all */
#define STARTUP_QUEUE 64		/* a quarter of the smallest round trip */
#define STARTUP_QUEUE_US 4000
#define PROBE_RTT_MS 200

/* The connection begins, or takes this congestion control. */
static __always_inline void pace_begin(struct pace *pace, const struct pace_parameters *parameters,
				       const struct pace_socket *socket, struct pace_decision *decision)
{
	__u32 rtt_us = socket->srtt_us ? socket->srtt_us : 1000;

	__builtin_memset(pace, 0, sizeof(*pace));
	pace->response = parameters->response;
	pace->min_rtt_us = UNKNOWN;
	pace->min_rtt_seen = (__u8)(socket->now_us >> 17);
	pace->cycle_rtt_us = pace->epoch_rtt_us = pace->round_rtt_us = pace->round_before_rtt_us = UNKNOWN;
	pace->rtt_seen = socket->srtt_us != 0;
	/* A connection may have delivered any number before it took this congestion control. */
	pace->round_end = pace->round_delivered = socket->delivered;
	pace->round_lost = socket->lost;
	decision->window = socket->window;
	decision->pacing = allowed_pacing(socket, bytes_at(socket->mss, rate_of(socket->window, rtt_us), STARTUP_GAIN));
}

/* The kernel has begun to recover from losses, or is about to. */
static __always_inline void pace_recovers(struct pace *pace, const struct pace_socket *socket)
{
	remember_window(pace, socket);
}

/* Losses were none: the estimate may not be whole after all, and there was no buffer to overrun. */
static __always_inline void pace_undoes(struct pace *pace)
{
	if (pace->lost_round)
		pace->bound = 0;
	pace->probe_rate = 0;
	pace->flat_rounds = 0;
}

static __always_inline void pace_enters(struct pace *pace, __u32 ca_state)
{
	if (ca_state == CA_LOSS) {
		/* After a timeout everything is sent anew. */
		pace->ca_state_before = CA_LOSS;
		pace->probe_rate = 0;
	}
	pace->ca_state = ca_state;
}

/*
 * It sends again with nothing under way: at the estimate, not in a burst, where it was for want of data; else the receiver had no room.
 * Returns 1 when it has decided.
 */
static __always_inline int pace_restarts(struct pace *pace, const struct pace_socket *given, int for_want_of_data,
					 struct pace_decision *decision)
{
	struct pace_socket here = *given, *socket = &here;

	pace->epoch_us = 0;
	/* The age of the smallest round trip has only a byte. */
	if ((__u32)socket->now_us - pace->acked_us > RTT_WINDOW << 17)
		pace->min_rtt_seen = (__u8)(socket->now_us >> 17) - RTT_WINDOW - 1;
	if (!for_want_of_data)
		return 0;
	pace->restarts = 1;
	if (pace->state != STATE_PROBE && pace->state != STATE_RESPONSE)
		return 0;
	decision->pacing = decide_pacing(pace, socket, GAIN_ONE);
	return 1;
}

/* Rounds, and the rate of this sample; 0 when it says nothing. */
static __always_inline __u32 take_sample(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample)
{
	__u32 rate;

	pace->round_begins = 0;
	if (sample->delivered < 0 || sample->interval_us <= 0)
		return 0;
	if ((__s32)(sample->prior_delivered - pace->round_end) >= 0) {
		pace->round_end = socket->delivered;
		pace->rounds++;
		pace->round_begins = 1;
		pace->conserve = 0;
	}
	rate = rate_of(sample->delivered, sample->interval_us);
	/* What STATE_PROBE_RTT sends, and what the round trip after it finds, says nothing of the path. */
	if (pace->state == STATE_PROBE_RTT)
		pace->unreliable = 2;
	else if (pace->unreliable && pace->round_begins && --pace->unreliable == 0)
		restart_estimate(pace, estimate(pace));
	if (pace->state != STATE_RESPONSE && (rate >= estimate(pace) || (!pace->unreliable && !sample->app_limited)))
		remember_rate(pace, rate);
	return rate;
}

static __always_inline void take_round_trip(struct pace *pace, const struct pace_sample *sample)
{
	__u32 rtt_us;

	if (sample->rtt_us <= 0)
		return;
	rtt_us = bounded_rtt(sample);
	if (rtt_us < pace->round_rtt_us)
		pace->round_rtt_us = rtt_us;
	if (rtt_us < pace->cycle_rtt_us)
		pace->cycle_rtt_us = rtt_us;
	if (rtt_us < pace->epoch_rtt_us)
		pace->epoch_rtt_us = rtt_us;
}

/* Whether STATE_STARTUP has found the whole bandwidth. */
static __always_inline void judge_startup(struct pace *pace, const struct pace_sample *sample)
{
	/* STATE_PROBE_RTT can come before the bandwidth is known: what it sends is no measure. */
	if (pace->full || sample->app_limited || pace->state != STATE_STARTUP)
		return;
	if (!is_published(pace) && is_marked(pace)) {
		pace->full = 1;
		return;
	}
	/* A queue stood for a whole round trip: there is no more. */
	if (!is_published(pace) && pace->round_before_rtt_us != UNKNOWN && pace->min_rtt_us != UNKNOWN &&
	    pace->round_before_rtt_us > rtt_above(pace, STARTUP_QUEUE, STARTUP_QUEUE_US)) {
		pace->full = 1;
		return;
	}
	if ((__u64)estimate(pace) * GAIN_ONE >= (__u64)pace->probe_rate * FULL_GROWTH) {
		pace->probe_rate = estimate(pace);
		pace->flat_rounds = 0;
	} else if (++pace->flat_rounds == 3) {
		pace->full = 1;
	}
}

/* Phases of equal connections shall not fall together: any but UP and DOWN, by the time. */
static __always_inline __u32 some_phase(const struct pace *pace, const struct pace_socket *socket)
{
	return 2 + (((socket->now_us & 7) * (phases(pace) - 2)) >> 3);
}

/* A round trip has ended: what is judged once in each. */
static __always_inline void end_round(struct pace *pace, const struct pace_parameters *parameters, struct pace_socket *socket,
				      const struct pace_sample *sample)
{
	PACE_LOOK_CLOSER(socket);
	pace->round_before_rtt_us = pace->round_rtt_us;
	pace->round_rtt_us = UNKNOWN;
	judge_pauses(pace, socket);
	if (pace->state == STATE_PROBE && !is_published(pace)) {
		bound_by_loss(pace, parameters, sample, socket->lost - pace->round_lost, socket->delivered - pace->round_delivered);
		if (pace->lost_round) {
			pace->found = 0;
			if (pace->phase == UP)
				begin_phase(pace, socket, DOWN);
		}
	}
	pace->round_lost = socket->lost;
	pace->round_delivered = socket->delivered;
	judge_way_back(pace, socket, sample);
	judge_startup(pace, sample);
}

/* STATE_PROBE_RTT: it ends when little has been in flight for long enough. */
static __always_inline void go_on_resting(struct pace *pace, struct pace_socket *socket)
{
	__u32 now_ms = (__u32)(socket->now_us >> 10);

	if (!pace->phase_us) {
		if (socket->in_flight <= probe_rtt_window(pace)) {
			pace->phase_us = (now_ms + PROBE_RTT_MS) | 1;
			pace->rtt_round_over = 0;
			pace->round_end = socket->delivered;
		}
		return;
	}
	if (pace->round_begins)
		pace->rtt_round_over = 1;
	if (!pace->rtt_round_over || (__s32)(now_ms - pace->phase_us) <= 0)
		return;
	pace->min_rtt_seen = (__u8)(socket->now_us >> 17);
	if (pace->full)
		begin_cycle(pace, socket, some_phase(pace, socket));
	else
		pace->state = STATE_STARTUP;
	socket->window = most(socket->window, pace->window_before);
}

/* The smallest round trip, and STATE_PROBE_RTT when it is too old to be believed. */
static __always_inline void follow_min_rtt(struct pace *pace, struct pace_socket *socket, const struct pace_sample *sample)
{
	__u8 now = (__u8)(socket->now_us >> 17);
	int old = (__u8)(now - pace->min_rtt_seen) > RTT_WINDOW;

	/* A negative one, none, is larger than any. */
	if ((__u64)sample->rtt_us < pace->min_rtt_us || (old && sample->rtt_us >= 0 && !sample->ack_delayed)) {
		PACE_LOOK_CLOSER(socket);
		begin_min_rtt(pace, socket, sample, old);
	}
	if (old && !pace->restarts && pace->state != STATE_PROBE_RTT) {
		remember_window(pace, socket);
		pace->state = STATE_PROBE_RTT;
		pace->phase_us = 0;
	}
}

/* What a state does at an acknowledgement, and which one follows. */
static __always_inline void go_on(struct pace *pace, const struct pace_parameters *parameters, struct pace_socket *socket,
				  const struct pace_sample *sample)
{
	if (pace->state == STATE_PROBE) {
		go_on_probing(pace, parameters, socket, sample);
		return;
	}
	NEXT_STEP();
	if (pace->state == STATE_STARTUP && pace->full)
		pace->state = STATE_DRAIN;
	if (pace->state == STATE_DRAIN && socket->in_flight <= product(pace, estimate(pace), GAIN_ONE))
		begin_cycle(pace, socket, some_phase(pace, socket));
}

/* An acknowledgement. */
static __always_inline void pace_acknowledged(struct pace *pace, const struct pace_parameters *parameters,
					      const struct pace_socket *given, const struct pace_sample *sample,
					      struct pace_decision *decision)
{
	struct pace_socket here = *given, *socket = &here;
	__u32 before = estimate(pace), gain, rate;
	int reduced = 0;

	rate = take_sample(pace, socket, sample);
	NEXT_STEP();
	note_pause(pace, socket);
	if (pace->round_begins)
		end_round(pace, parameters, socket, sample);
	take_round_trip(pace, sample);
	if (pace->full && pace->response == RESPONSE_TARN && respond(pace, parameters, socket, sample, rate)) {
		/* Two rounds at the estimate, then it looks for more. */
		begin_cycle(pace, socket, phases(pace) - 2);
		pace->responded = 1;
	}
	NEXT_STEP();
	go_on(pace, parameters, socket, sample);
	NEXT_STEP();
	follow_min_rtt(pace, socket, sample);
	NEXT_STEP();
	if (pace->state == STATE_PROBE_RTT)
		go_on_resting(pace, socket);
	if (pace->restarts && sample->delivered > 0)
		pace->restarts = 0;

	NEXT_STEP();
	gain = pacing_gain(pace, parameters);
	if (is_published(pace) && rate && pace->state == STATE_PROBE && !sample->app_limited) {
		__u32 left = published_gain(parameters, rate, before, estimate(pace));

		reduced = published_reduces(pace, parameters, left);
		if (pace->response == RESPONSE_PUBLISHED_REPAIRED)
			gain = (gain * left) >> 8;
	}
	decision->pacing = decide_pacing(pace, socket, gain);
	NEXT_STEP();
	decision->window = decide_window(pace, parameters, socket, sample, decision->pacing, reduced);
}

#endif
