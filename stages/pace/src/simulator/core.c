// SPDX-License-Identifier: GPL-2.0-only
/*
 * The algorithm of ../core for user space: functions that Rust can call, and what it cannot read of struct pace, the bit fields.
 */
#include <linux/types.h>

#include "../core/core.h"

void tarn_pace_begin(struct pace *pace, const struct pace_parameters *parameters, const struct pace_socket *socket,
		     struct pace_decision *decision)
{
	pace_begin(pace, parameters, socket, decision);
}

void tarn_pace_acknowledged(struct pace *pace, const struct pace_parameters *parameters, const struct pace_socket *socket,
			    const struct pace_sample *sample, struct pace_decision *decision)
{
	pace_acknowledged(pace, parameters, socket, sample, decision);
}

void tarn_pace_recovers(struct pace *pace, const struct pace_socket *socket)
{
	pace_recovers(pace, socket);
}

void tarn_pace_undoes(struct pace *pace)
{
	pace_undoes(pace);
}

void tarn_pace_enters(struct pace *pace, __u32 ca_state)
{
	pace_enters(pace, ca_state);
}

int tarn_pace_restarts(struct pace *pace, const struct pace_socket *socket, struct pace_decision *decision)
{
	return pace_restarts(pace, socket, 1, decision);
}

__u32 tarn_pace_burst(const struct pace_socket *socket, __u64 pacing)
{
	return burst(socket, pacing);
}

__u32 tarn_pace_state(const struct pace *pace)
{
	return pace->state;
}

__u32 tarn_pace_full(const struct pace *pace)
{
	return pace->full;
}

__u32 tarn_pace_conserves(const struct pace *pace)
{
	return pace->conserve;
}

/* Packets that a gain of the estimate keeps on the way. */
__u32 tarn_pace_packets(const struct pace *pace, __u32 gain)
{
	return packets_at(pace, estimate(pace), gain);
}
