/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How fast and how much: the pace, and the window that follows from the state.
 */
#ifndef TARN_PACE_WINDOW_H
#define TARN_PACE_WINDOW_H

#include "cycle.h"

#define STARTUP_GAIN 739	/* 2/ln 2: the least that doubles the rate each round trip */
#define DRAIN_GAIN 88		/* its inverse */
#define BBR_WINDOW_GAIN 512
#define BURST_BYTES_MOST (65536 - 1 - 320)	/* what a segment for the device may hold (tcp_tso_autosize) */
#define BURST_SLOW 150000	/* bytes a second; up to there a burst is one packet */

/* The packets that the kernel hands to the device at once at a pace: what it sends in about a millisecond. */
static __always_inline __u32 burst(const struct pace_socket *socket, __u64 pacing)
{
	__u64 bytes = pacing >> 10;
	__u32 least_packets = pacing < BURST_SLOW ? 1 : 2, packets;

	/* Mostly less than three packets (up to 35 Mbit/s, with 1448 bytes each): the least, without a division. */
	if (pacing >= BURST_SLOW && bytes < 3ULL * socket->mss)
		return least_packets;
	if (bytes > BURST_BYTES_MOST)
		bytes = BURST_BYTES_MOST;
	packets = socket->mss ? (__u32)bytes / socket->mss : 0;
	return least(most(packets, least_packets), 0x7f);
}

static __always_inline __u32 pacing_gain(const struct pace *pace, const struct pace_parameters *parameters)
{
	if (pace->state == STATE_PROBE)
		return pace->phase > DOWN ? GAIN_ONE : pace->phase == UP ? up_gain(pace, parameters) : DOWN_GAIN;
	switch (pace->state) {
	case STATE_STARTUP:
		return STARTUP_GAIN;
	case STATE_DRAIN:
		return DRAIN_GAIN;
	case STATE_RESPONSE:
		return parameters->drain_gain;
	default:
		return GAIN_ONE;
	}
}

static __always_inline __u32 window_gain(const struct pace *pace, const struct pace_parameters *parameters)
{
	if (pace->state == STATE_PROBE) {
		if (pace->competing >= COMPETING)
			return parameters->competing_window_gain;
		if (pace->phase != UP)
			return parameters->window_gain;
		return pace->found ? most(BBR_WINDOW_GAIN, parameters->probe_window_gain)
				   : most(parameters->probe_window_gain, up_gain(pace, parameters));
	}
	return pace->state <= STATE_DRAIN ? STARTUP_GAIN : GAIN_ONE;
}

/* No more than the process allows (SO_MAX_PACING_RATE). */
static __always_inline __u64 allowed_pacing(const struct pace_socket *socket, __u64 pacing)
{
	return pacing < socket->pacing_most ? pacing : socket->pacing_most;
}

/* The pace; before the whole bandwidth is found it only grows. */
static __always_inline __u64 decide_pacing(struct pace *pace, struct pace_socket *socket, __u32 gain)
{
	__u64 now = socket->pacing, wanted = bytes_at(socket->mss, estimate(pace), gain);

	if (pace->full)
		return allowed_pacing(socket, wanted);
	if (!pace->rtt_seen)
		PACE_LOOK_CLOSER(socket);
	if (!pace->rtt_seen && socket->srtt_us) {
		pace->rtt_seen = 1;
		now = bytes_at(socket->mss, rate_of(socket->window, socket->srtt_us), STARTUP_GAIN);
	}
	return allowed_pacing(socket, wanted > now ? wanted : now);
}

/* As BBR has it: the product times a gain, and three bursts. */
static __always_inline __u32 published_window(const struct pace *pace, const struct pace_socket *socket, __u64 pacing)
{
	__u32 gain = pace->state == STATE_PROBE ? BBR_WINDOW_GAIN : pace->state <= STATE_DRAIN ? STARTUP_GAIN : GAIN_ONE;
	__u32 window = (packets_at(pace, estimate(pace), gain) + 3 * burst(socket, pacing) + 1) & ~1U;

	return pace->state == STATE_PROBE && pace->phase == UP ? window + 2 : window;
}

/*
 * The least window. Four packets each of sixteen connections can be more than a slow path and its queue hold, and then every one
 * loses all the time: between probes two will do.
 */
static __always_inline __u32 window_least(const struct pace *pace)
{
	if (is_published(pace))
		return WINDOW_MIN;
	return pace->state == STATE_RESPONSE || (pace->state == STATE_PROBE && pace->phase != UP) ? WINDOW_CROWDED : WINDOW_MIN;
}

/* The window that the model asks for: what is on the way, and what segments for the device and delayed acknowledgements hold. */
static __always_inline __u32 window_wanted(const struct pace *pace, const struct pace_parameters *parameters,
					   const struct pace_socket *socket, __u64 pacing)
{
	__u32 window, above;

	if (is_published(pace))
		return published_window(pace, socket, pacing);
	/* product(), but mostly nothing waits on the way back; a branch in it, at all its places, doubles what the verifier looks at. */
	window = packets_at(pace, estimate(pace), window_gain(pace, parameters));
	if (pace->back)
		window += packets_back(pace, estimate(pace));
	if (pace->state == STATE_RESPONSE)
		return most(window, WINDOW_CROWDED);
	window += burst(socket, pacing);
	above = held_us(pace) - (pace->min_rtt_us >> 2);
	/* Rarely: without saying so, the compiler computes the product in any case. */
	if (__builtin_expect((__s32)above > 0, 0))
		window += rate_in(estimate(pace), above);
	window = (window + 1) & ~1U;
	return pace->state == STATE_PROBE && pace->phase == UP ? window + 2 : window;
}

/* Half the product: enough to go on, too little for a queue. BBR's is four packets. */
static __always_inline __u32 probe_rtt_window(const struct pace *pace)
{
	return is_published(pace) ? WINDOW_MIN : most(WINDOW_MIN, packets_at(pace, estimate(pace), GAIN_ONE / 2));
}

static __always_inline void remember_window(struct pace *pace, const struct pace_socket *socket)
{
	if (pace->ca_state_before < CA_RECOVERY && pace->state != STATE_PROBE_RTT)
		pace->window_before = socket->window;
	else
		pace->window_before = most(pace->window_before, socket->window);
}

/*
 * What loss and recovery do to the window, as in BBR: packets that are lost make no room; in the first round trip of a recovery as
 * much is sent as is delivered; at its end the window is what it was. Returns 1 when `window` is to be taken as it is.
 */
static __always_inline int recover(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample,
				   __u32 *window)
{
	if (sample->losses > 0)
		*window = *window > (__u32)sample->losses ? *window - sample->losses : 1;
	/* Mostly there is nothing to recover from, and there was not. */
	if (!pace->ca_state && !pace->ca_state_before && !pace->conserve)
		return 0;
	if (pace->ca_state == CA_RECOVERY && pace->ca_state_before != CA_RECOVERY) {
		pace->conserve = 1;
		pace->round_end = socket->delivered;
		*window = socket->in_flight + sample->acked;
	} else if (pace->ca_state_before >= CA_RECOVERY && pace->ca_state < CA_RECOVERY) {
		*window = most(*window, pace->window_before);
		pace->conserve = 0;
	}
	pace->ca_state_before = pace->ca_state;
	if (pace->conserve)
		*window = most(*window, socket->in_flight + sample->acked);
	return pace->conserve;
}

static __always_inline __u32 decide_window(struct pace *pace, const struct pace_parameters *parameters,
					   const struct pace_socket *socket, const struct pace_sample *sample, __u64 pacing, int reduced)
{
	__u32 window = socket->window;

	if (sample->acked) {
		__u32 wanted = window_wanted(pace, parameters, socket, pacing);

		if (recover(pace, socket, sample, &window)) {
			if (pace->full && !is_published(pace))
				window = least(window, most(wanted, WINDOW_MIN));
		} else {
			if (pace->full)
				window = least(window + sample->acked, wanted);
			else if (window < wanted || socket->delivered < 2 * 10)
				window += sample->acked;
			if (window < WINDOW_MIN)
				window = most(window, window_least(pace));
		}
		if (pace->bound && pace->state == STATE_PROBE) {
			/* An eighth is left to others, but while it probes. */
			__u32 bound = pace->phase > DOWN ? pace->bound - (pace->bound >> 3) : pace->bound;

			window = least(window, most(bound, WINDOW_MIN));
		}
		if (reduced)
			window = most(least(window, packets_at(pace, estimate(pace), REDUCED_WINDOW)), WINDOW_MIN);
	}
	if (pace->state == STATE_PROBE_RTT)
		window = least(window, probe_rtt_window(pace));
	return least(window, socket->window_most);
}

#endif
