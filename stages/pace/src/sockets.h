/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What programs need that go through the TCP sockets of a network namespace. The kernel holds a socket's lock meanwhile.
 */
#ifndef TARN_PACE_SOCKETS_H
#define TARN_PACE_SOCKETS_H

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10

/* include/net/tcp_states.h: those in which a connection sends. */
#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE_WAIT 8

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

/* What such a program is called with; without a socket at the end. */
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

/* An iterator also sees sockets that listen, and those of connections that begin or are over. */
static __always_inline bool sends(__u8 state)
{
	return state == TCP_ESTABLISHED || state == TCP_CLOSE_WAIT || state == TCP_FIN_WAIT1;
}

/* Whether the socket's congestion control has this name, of up to 16 characters. */
static __always_inline bool uses(const struct inet_connection_sock *socket, const volatile char *wanted)
{
	char name[16];

	/* Of the running kernel's structure: kernel.h has only what a congestion control fills in. */
	if (bpf_probe_read_kernel(name, sizeof(name), __builtin_preserve_access_index(&socket->icsk_ca_ops->name)))
		return false;
	for (__u32 i = 0; i < sizeof(name); i++) {
		if (name[i] != wanted[i])
			return false;
		if (!name[i])
			return true;
	}
	return true;
}

static __always_inline bool uses_it(const struct inet_connection_sock *socket)
{
	static const char wanted[16] = "tarn_pace";

	return uses(socket, wanted);
}

/* IPv4 as ::ffff:a.b.c.d, on the wire. */
static __always_inline void mapped(__be32 address, __u8 *to)
{
	__u32 *words = (__u32 *)to;

	words[0] = words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = address;
}

/* The peer's address, as on the wire; IPv4 as ::ffff:a.b.c.d. False where there is none. */
static __always_inline bool peer_of(const struct sock_common *common, __u8 *peer)
{
	switch (common->skc_family) {
	case AF_INET:
		mapped(common->skc_daddr, peer);
		return true;
	case AF_INET6:
		return !bpf_probe_read_kernel(peer, 16, &common->skc_v6_daddr);
	default:
		return false;
	}
}

/* The same of this host's end. */
static __always_inline bool local_of(const struct sock_common *common, __u8 *local)
{
	switch (common->skc_family) {
	case AF_INET:
		mapped(common->skc_rcv_saddr, local);
		return true;
	case AF_INET6:
		return !bpf_probe_read_kernel(local, 16, &common->skc_v6_rcv_saddr);
	default:
		return false;
	}
}

#endif
