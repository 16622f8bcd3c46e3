// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who takes tarn_pace: connections to prefixes of destinations, and those of control groups.
 *
 * A program of a control group is called when a connection of one of its processes begins. Attached to the root, it sees all: those of
 * the namespace that `tarn up` ran in take the congestion control if their peer is in one of the prefixes. Attached to a group that the
 * configuration names, it has all connections of that group take it, of whatever namespace: containers have their own.
 *
 * It chooses when it is established, before it sends data: earlier, neither the clock nor the round trip nor the size of its segments is
 * known, and a congestion control would begin with nothing. A connection whose process has chosen one keeps that; one that is accepted
 * inherits that from the socket it was accepted by.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"

/* include/uapi/linux/bpf.h, include/linux/socket.h, include/uapi/linux/tcp.h */
#define BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB 4
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB 5
#define AF_INET 2
#define AF_INET6 10
#define SOL_TCP 6
#define TCP_CONGESTION 13

/* What every such program has to return: with anything else, the kernel ignores what others of the group answer. */
#define PROCEED 1

/* The beginning of the context as programs see it, which stays as it is (include/uapi/linux/bpf.h). */
struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4;	/* as on the wire, like all addresses */
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 not_used_here[30];
	__u64 bytes_received, bytes_acked;
	struct bpf_sock *sk;
};
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "as programs see it");

char LICENSE[] SEC("license") = "GPL";

/* The cookie of the network namespace whose connections go by destination. */
const volatile __u64 namespace = 0;

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, DESTINATIONS_MOST);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pace_destination);
	__type(value, __u8);
} destinations SEC(".maps");

static __always_inline bool begins(const struct bpf_sock_ops *socket)
{
	return socket->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || socket->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB;
}

/* Whether the connection's process has chosen a congestion control itself. */
static __always_inline bool has_chosen(const struct bpf_sock_ops *socket)
{
	struct inet_connection_sock *connection;

	if (!socket->sk)
		return false;
	connection = (struct inet_connection_sock *)bpf_skc_to_tcp_sock(socket->sk);
	return connection && BPF_CORE_READ_BITFIELD_PROBED(connection, icsk_ca_setsockopt);
}

static __always_inline void choose(struct bpf_sock_ops *socket)
{
	char name[] = "tarn_pace";

	/* Refused while an `up` replaces it and there is none of the name: the connection keeps the default, as if it had come earlier. */
	if (!has_chosen(socket))
		bpf_setsockopt(socket, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
}

/* The peer's address; 0 when it is of no family that is known. */
static __always_inline int peer_of(struct bpf_sock_ops *socket, struct pace_destination *peer)
{
	__u32 *words = (__u32 *)peer->address;

	switch (socket->family) {
	case AF_INET:
		words[0] = words[1] = 0;
		words[2] = bpf_htonl(0xffff);
		words[3] = socket->remote_ip4;
		/* Else the compiler joins this load with the last one below, behind a computed address, which the verifier refuses. */
		barrier();
		return 1;
	case AF_INET6:
		words[0] = socket->remote_ip6[0];
		words[1] = socket->remote_ip6[1];
		words[2] = socket->remote_ip6[2];
		words[3] = socket->remote_ip6[3];
		return 1;
	default:
		return 0;
	}
}

SEC("sockops")
int by_destination(struct bpf_sock_ops *socket)
{
	struct pace_destination peer;

	if (!begins(socket) || bpf_get_netns_cookie(socket) != namespace)
		return PROCEED;
	if (!peer_of(socket, &peer))
		return PROCEED;
	make_whole(&peer);
	if (bpf_map_lookup_elem(&destinations, &peer))
		choose(socket);
	return PROCEED;
}

SEC("sockops")
int by_group(struct bpf_sock_ops *socket)
{
	if (begins(socket))
		choose(socket);
	return PROCEED;
}
