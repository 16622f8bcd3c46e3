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

#define AO_LEAST 4	/* bytes: of its option without a code (RFC 5925, section 2.2) */

static struct sock *look_up(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet)
{
	const struct flow_key *key = &packet->key;

	if (key->family == NFPROTO_IPV4)
		return lookup_established(state->net, ip_hdr(skb)->saddr, key->client_port, ip_hdr(skb)->daddr,
					  ntohs(key->local_port), inet_iif(skb), inet_sdif(skb));
	return lookup_established6(state->net, &key->client, key->client_port, &key->local, ntohs(key->local_port),
				   inet6_iif(skb), inet6_sdif(skb));
}

const struct sock *connection_find(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet)
{
	skb_orphan(skb);
	skb->sk = look_up(skb, state, packet);
	/* The lookup took a reference, which goes with the packet. */
	if (skb->sk)
		skb->destructor = sock_edemux;
	return skb->sk;
}

static bool is_proven(const struct sock *sk)
{
	return sk && sk_fullsock(sk) && sk->sk_state != TCP_LISTEN;
}

/* The service has closed its side, or all of it: it answers nothing any more. Its socket may be one that only waits for the end. */
static bool has_ended(const struct sock *sk)
{
	return (1 << READ_ONCE(sk->sk_state)) &
	       (TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2 | TCPF_CLOSING | TCPF_LAST_ACK | TCPF_TIME_WAIT | TCPF_CLOSE);
}

/* In a handshake that ends with data, it is the server's SYN that is acknowledged. In one by cookies that is known only to TCP. */
static bool is_handshakes_ack(const struct sock *sk, u32 ack)
{
	return !sk || sk->sk_state != TCP_NEW_SYN_RECV || ack == tcp_rsk(inet_reqsk(sk))->snt_isn + 1;
}

/*
 * Without the socket's lock: numbers only go on, so that what TCP has by now is seen as wanted at worst. A window that has
 * become larger meanwhile lets a segment pass that TCP takes then.
 */
bool connection_ask(const struct sock *sk, struct packet *packet)
{
	const struct tcp_sock *tcp;
	u32 next;

	packet->is_proven = is_proven(sk);
	if (!packet->is_proven) {
		packet->is_first = true;
		/* With TCP_DEFER_ACCEPT it is the data that end the handshake. Who knows the number has got the service's side of it. */
		packet->is_proven = packet->has_ack && sk && sk->sk_state == TCP_NEW_SYN_RECV && is_handshakes_ack(sk, packet->ack);
		/* Of what is no connection (yet), TCP says so itself. */
		return packet->is_reset || !sk || !has_ended(sk);
	}
	tcp = tcp_sk(sk);
	next = READ_ONCE(tcp->rcv_nxt);
	packet->is_first = !READ_ONCE(tcp->bytes_received) || (tcp->syn_data_acked && READ_ONCE(tcp->data_segs_in) <= 1);
	if (packet->is_reset) {
		packet->resets = packet->seq == next;
		return true;
	}
	return !has_ended(sk) && after(packet->end_seq, next) &&
	       !after(packet->seq, READ_ONCE(tcp->rcv_wup) + READ_ONCE(tcp->rcv_wnd));
}

bool connection_takes_ack(const struct sock *sk, const struct packet *packet)
{
	const struct tcp_sock *tcp;
	u32 acknowledged, back;

	if (!is_proven(sk))
		return is_handshakes_ack(sk, packet->ack);
	tcp = tcp_sk(sk);
	acknowledged = READ_ONCE(tcp->snd_una);
	back = min_t(u64, READ_ONCE(tcp->max_window), READ_ONCE(tcp->bytes_acked));
	return !before(packet->ack, acknowledged - back) && !after(packet->ack, READ_ONCE(tcp->snd_nxt));
}

bool connection_may_end(const struct sock *sk, u32 seq)
{
	const struct tcp_sock *tcp;

	if (!is_proven(sk))
		return false;
	tcp = tcp_sk(sk);
	return seq == READ_ONCE(tcp->rcv_nxt) && READ_ONCE(tcp->write_seq) == READ_ONCE(tcp->snd_una);
}

/* What TCP of this kernel checks, and drops where it expects none. An option that it does not know says nothing. */
static bool is_signature(u8 kind, u8 length)
{
	if (IS_ENABLED(CONFIG_TCP_MD5SIG) && kind == TCPOPT_MD5SIG)
		return length == TCPOLEN_MD5SIG;
	return IS_ENABLED(CONFIG_TCP_AO) && kind == TCPOPT_AO && length >= AO_LEAST;
}

/* Reads the options as TCP does (tcp_parse_md5sig_option(), tcp_do_parse_auth_options()): what it would overlook is no signature. */
bool segment_is_signed(const struct sk_buff *skb, const struct packet *packet)
{
	u32 at = packet->offset + sizeof(struct tcphdr), end = packet->payload_offset;
	u8 room[MAX_TCP_OPTION_SPACE];
	const u8 *option = skb_header_pointer(skb, at, end - at, room);
	u32 left = option ? end - at : 0;

	while (left >= 2 && *option != TCPOPT_EOL) {
		u32 length = *option == TCPOPT_NOP ? 1 : option[1];

		if (!length || length > left || (length < 2 && *option != TCPOPT_NOP))
			return false;
		if (length > 1 && is_signature(option[0], length))
			return true;
		option += length;
		left -= length;
	}
	return false;
}

/* A socket has one of these from its handshake on, if a key of its listener was for this client. */
static bool has_keys(const struct sock *sk)
{
#ifdef CONFIG_TCP_MD5SIG
	if (rcu_access_pointer(tcp_sk(sk)->md5sig_info))
		return true;
#endif
#ifdef CONFIG_TCP_AO
	if (rcu_access_pointer(tcp_sk(sk)->ao_info))
		return true;
#endif
	return false;
}

bool connection_is_signed(const struct sock *sk, const struct sk_buff *skb, const struct packet *packet)
{
	return is_proven(sk) ? has_keys(sk) : segment_is_signed(skb, packet);
}
