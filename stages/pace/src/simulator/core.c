// SPDX-License-Identifier: GPL-2.0-only
/*
 * The algorithm of ../core for user space: functions that Rust can call, and what it cannot read of struct pace, the bit fields.
 */
#include <linux/types.h>
#include <stddef.h>

#define PACE_LOOK_CLOSER(socket) look_closer(socket)
struct pace_socket;
static inline void look_closer(struct pace_socket *socket);

#include "../core/core.h"

/* What a structure of Rust holds: it has no `kernel`. */
#define GIVEN offsetof(struct pace_socket, kernel)
/* What is not looked at closer: nobody may go by it. */
#define UNREAD 0xdeadbeef

static inline void look_closer(struct pace_socket *socket)
{
	const struct pace_socket *all = socket->kernel;

	socket->lost = all->lost;
	socket->srtt_us = all->srtt_us;
	socket->peer_ms = all->peer_ms;
}

static struct pace_socket whole(const struct pace_socket *given)
{
	struct pace_socket socket;

	__builtin_memcpy(&socket, given, GIVEN);
	socket.kernel = given;
	return socket;
}

/* As the kernel's program looks at a socket at an acknowledgement. */
static struct pace_socket glance_at(const struct pace_socket *given)
{
	struct pace_socket socket = whole(given);

	socket.lost = socket.srtt_us = socket.peer_ms = UNREAD;
	return socket;
}

void tarn_pace_begin(struct pace *pace, const struct pace_parameters *parameters, const struct pace_socket *socket,
		     struct pace_decision *decision)
{
	struct pace_socket seen = whole(socket);

	pace_begin(pace, parameters, &seen, decision);
}

void tarn_pace_acknowledged(struct pace *pace, const struct pace_parameters *parameters, const struct pace_socket *socket,
			    const struct pace_sample *sample, struct pace_decision *decision)
{
	struct pace_socket seen = glance_at(socket);

	pace_acknowledged(pace, parameters, &seen, sample, decision);
}

/* The same for who looks at all of the socket each time. */
void tarn_pace_acknowledged_whole(struct pace *pace, const struct pace_parameters *parameters, const struct pace_socket *socket,
				  const struct pace_sample *sample, struct pace_decision *decision)
{
	struct pace_socket seen = whole(socket);

	pace_acknowledged(pace, parameters, &seen, sample, decision);
}

int tarn_pace_is_same(const struct pace *one, const struct pace *other)
{
	return !__builtin_memcmp(one, other, sizeof(*one));
}

void tarn_pace_recovers(struct pace *pace, const struct pace_socket *socket)
{
	struct pace_socket seen = whole(socket);

	pace_recovers(pace, &seen);
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
	struct pace_socket seen = whole(socket);

	return pace_restarts(pace, &seen, 1, decision);
}

__u32 tarn_pace_burst(const struct pace_socket *socket, __u64 pacing)
{
	struct pace_socket seen = whole(socket);

	return burst(&seen, pacing);
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
