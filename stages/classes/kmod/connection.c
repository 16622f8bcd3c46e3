// SPDX-License-Identifier: GPL-2.0
/* See connection.h. */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <net/ip.h>
#include <net/route.h>
#include <net/tcp.h>

#include "compat.h"
#include "connection.h"

/* Options that sign a segment, and those without a length (RFC 9293, section 3.1). */
#define OPTION_END 0
#define OPTION_NONE 1
#define OPTION_MD5 19
#define OPTION_AO 29

static struct sock *look_up(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet)
{
	const struct flow_key *key = &packet->key;

	if (key->family == NFPROTO_IPV4)
		return lookup_established(state->net, ip_hdr(skb)->saddr, key->client_port, ip_hdr(skb)->daddr,
					  ntohs(key->local_port), inet_iif(skb), inet_sdif(skb));
	return lookup_established6(state->net, &key->client, key->client_port, &key->local, ntohs(key->local_port),
				   inet6_iif(skb), inet6_sdif(skb));
}

const struct sock *connection_of(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet)
{
	if (!skb->sk) {
		skb_orphan(skb);
		skb->sk = look_up(skb, state, packet);
		/* The lookup took a reference, which goes with the packet. */
		if (skb->sk)
			skb->destructor = sock_edemux;
	}
	return skb->sk;
}

/*
 * Without the socket's lock: numbers only go on, so that what TCP has by now is seen as wanted at worst. A window that has
 * become larger meanwhile lets a segment pass that TCP takes then.
 */
bool connection_wants(const struct sock *sk, const struct packet *packet)
{
	const struct tcp_sock *tcp;
	u32 next, window;

	/* Of what is no connection (yet), TCP says so itself. */
	if (!sk || !sk_fullsock(sk) || sk->sk_state == TCP_LISTEN)
		return true;
	tcp = tcp_sk(sk);
	next = READ_ONCE(tcp->rcv_nxt);
	window = tcp_receive_window(tcp);
	return after(packet->end_seq, next) && !after(packet->seq, next + window);
}

bool is_signed(const struct sk_buff *skb, const struct packet *packet)
{
	u8 room[15 << 2];
	const struct tcphdr *header = skb_header_pointer(skb, packet->offset, sizeof(*header), room);
	u32 length = header ? header->doff << 2 : 0, at = sizeof(*header);
	const u8 *bytes = length ? skb_header_pointer(skb, packet->offset, length, room) : NULL;

	while (bytes && at + 1 < length) {
		if (bytes[at] == OPTION_MD5 || bytes[at] == OPTION_AO)
			return true;
		if (bytes[at] == OPTION_END || (bytes[at] != OPTION_NONE && bytes[at + 1] < 2))
			return false;
		at += bytes[at] == OPTION_NONE ? 1 : bytes[at + 1];
	}
	return false;
}
