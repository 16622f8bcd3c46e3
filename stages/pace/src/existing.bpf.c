// SPDX-License-Identifier: GPL-2.0-only
/*
 * Has connections that stand take tarn_pace, or another congestion control instead of it.
 *
 * Connections whose process has chosen another one than the default keep that. (Whose process has chosen the default cannot be told from
 * those that were moved here before: the kernel takes it for a choice of theirs.) The kernel has the connection begin anew with what its new congestion control
 * knows, which is nothing: the window stays, and so do the round trips that TCP itself knows.
 */
#include "sockets.h"
#include <bpf/bpf_core_read.h>

#include "steer.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13

char LICENSE[] SEC("license") = "GPL";

/* The congestion control that they are to take, by its name. */
const volatile char target[16] = {};
/* The default, for those that are to take tarn_pace. */
const volatile char usual[16] = {};
/* Whether those that use tarn_pace are meant; else those that do not, whose process has not chosen. */
const volatile bool away = false;
/* Of these, whether all are meant; else those to the destinations. */
const volatile bool everybody = false;

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, DESTINATIONS_MOST);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pace_destination);
	__type(value, __u8);
} destinations SEC(".maps");

struct pace_chosen chosen;

static __always_inline bool is_meant(const struct sock_common *common, const struct inet_connection_sock *socket)
{
	struct pace_destination peer;

	if (uses_it(socket) != away)
		return false;
	if (!away && BPF_CORE_READ_BITFIELD_PROBED(socket, icsk_ca_setsockopt) && !uses(socket, usual))
		return false;
	if (everybody)
		return true;
	if (!peer_of(common, peer.address))
		return false;
	make_whole(&peer);
	return bpf_map_lookup_elem(&destinations, &peer);
}

SEC("iter/tcp")
int walk(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	struct tcp_sock *socket;
	char name[16];

	if (!common || !sends(common->skc_state))
		return 0;
	socket = bpf_skc_to_tcp_sock(common);
	if (!socket || !is_meant(common, (struct inet_connection_sock *)socket))
		return 0;
	for (__u32 i = 0; i < sizeof(name); i++)
		name[i] = target[i];
	if (bpf_setsockopt(socket, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		chosen.refused++;
	else
		chosen.taken++;
	return 0;
}
