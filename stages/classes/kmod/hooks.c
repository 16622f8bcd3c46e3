// SPDX-License-Identifier: GPL-2.0
/*
 * See hooks.h.
 *
 * Requests are taken at LOCAL_IN, last but one: after reassembly (that of IPv6, which comes later by itself, is brought
 * forward, as for connection tracking), filters and address translation, before connection
 * tracking confirms new connections (INT_MAX). A packet that has to wait first passes what comes after us, so that its
 * connection is confirmed at once; what is left is to go on to TCP or UDP.
 *
 * A packet that waits keeps what it has borrowed: its route (skb_dst_force), the socket that early demultiplexing found
 * (as in net/netfilter/nf_queue.c), its device.
 *
 * Answers are seen at LOCAL_OUT, first: with the addresses that the service's socket has, as LOCAL_IN saw them last.
 */
#include <linux/err.h>
#include <linux/ip.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/udp.h>
#include <net/ipv6.h>
#include <net/netfilter/ipv6/nf_defrag_ipv6.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "ack.h"
#include "checksum.h"
#include "compat.h"
#include "connection.h"
#include "datagrams.h"
#include "dispatch.h"
#include "flows.h"
#include "hooks.h"
#include "protocol.h"

/* Behind extension headers: the offset of the transport header, or 0. */
static int find_transport(const struct sk_buff *skb, u8 *protocol)
{
	unsigned int offset = 0;
	unsigned short fragment;
	int found;

	found = ipv6_find_hdr(skb, &offset, -1, &fragment, NULL);
	if (found < 0 || fragment)
		return 0;
	*protocol = found;
	return offset;
}

/* The offset of the transport header, or 0. */
static __always_inline int transport_offset(const struct sk_buff *skb, u8 family, u8 *protocol)
{
	if (likely(family == NFPROTO_IPV4)) {
		*protocol = ip_hdr(skb)->protocol;
		return ip_is_fragment(ip_hdr(skb)) ? 0 : skb_network_offset(skb) + ip_hdrlen(skb);
	}
	*protocol = ipv6_hdr(skb)->nexthdr;
	if (likely(*protocol == IPPROTO_TCP || *protocol == IPPROTO_UDP))
		return skb_network_offset(skb) + sizeof(struct ipv6hdr);
	return find_transport(skb, protocol);
}

/* The client is the source of what comes in, and the destination of what leaves. */
static __always_inline void read_ends(const struct sk_buff *skb, u8 family, bool is_leaving, struct flow_key *key)
{
	if (family == NFPROTO_IPV4) {
		const struct iphdr *header = ip_hdr(skb);

		ipv6_addr_set(&key->client, is_leaving ? header->daddr : header->saddr, 0, 0, 0);
		ipv6_addr_set(&key->local, is_leaving ? header->saddr : header->daddr, 0, 0, 0);
	} else {
		const struct ipv6hdr *header = ipv6_hdr(skb);

		key->client = is_leaving ? header->daddr : header->saddr;
		key->local = is_leaving ? header->saddr : header->daddr;
	}
	key->family = family;
	key->query = 0;
}

/*
 * NH of UMAC (RFC 4418, section 5.2.2), of which the upper bits are taken: pairs of words, each with a secret added, are
 * multiplied, so that nobody outside can find addresses and ports that share a bucket.
 */
static __always_inline u64 nh(u64 sum, u64 secret, u32 a, u32 b)
{
	return sum + (u64)(u32)(a + (u32)secret) * (u32)(b + (u32)(secret >> 32));
}

static __always_inline u32 bucket_of(const struct classes *classes, const struct flow_key *key)
{
	const u32 *client = (const u32 *)key->client.s6_addr32, *local = (const u32 *)key->local.s6_addr32;
	const u64 *secret = classes->hash_key;
	u64 sum;

	sum = nh(0, secret[0], client[0], local[0]);
	sum = nh(sum, secret[1], (u32)key->client_port << 16 | (u32)key->local_port, (u32)key->query << 8 | key->protocol);
	if (key->family != NFPROTO_IPV4) {
		sum = nh(sum, secret[2], client[1], local[1]);
		sum = nh(sum, secret[3], client[2], local[2]);
		sum = nh(sum, secret[4], client[3], local[3]);
	}
	return sum >> (64 - FLOW_BUCKETS_BITS);
}

static __always_inline bool read_tcp(struct sk_buff *skb, struct packet *packet)
{
	const struct tcphdr *tcp;

	if (!pskb_may_pull(skb, packet->offset + sizeof(*tcp)))
		return false;
	tcp = (const struct tcphdr *)(skb->data + packet->offset);
	if (tcp->doff < 5 || skb->len < packet->offset + tcp->doff * 4)
		return false;
	packet->payload_offset = packet->offset + tcp->doff * 4;
	packet->payload = skb->len - packet->payload_offset;
	packet->is_syn = tcp->syn;
	if (packet->is_syn && !packet->payload)
		return false;
	packet->is_fin = tcp->fin;
	packet->is_reset = tcp->rst;
	packet->has_ack = tcp->ack;
	packet->resets = false;
	packet->is_proven = false;
	packet->is_first = false;
	packet->is_h2 = false;
	packet->is_notice = false;
	packet->seq = ntohl(tcp->seq);
	packet->ack = ntohl(tcp->ack_seq);
	packet->end_seq = packet->seq + packet->payload + tcp->fin;
	return true;
}

/*
 * A length that cannot be is that of a datagram which UDP drops. Over IPv6, 0 is that of a jumbogram (RFC 2675, section 4), and UDP
 * takes it for the rest of the packet, however short that is.
 */
static __always_inline bool read_udp(const struct sk_buff *skb, const struct udphdr *udp, struct packet *packet)
{
	u32 length = ntohs(udp->len);

	if (unlikely(!length) && packet->key.family == NFPROTO_IPV6)
		length = skb->len - packet->offset;
	if (length < sizeof(*udp) || length > skb->len - packet->offset)
		return false;
	packet->payload_offset = packet->offset + sizeof(*udp);
	packet->payload = length - sizeof(*udp);
	packet->seq = 0;
	packet->end_seq = 0;
	packet->is_syn = false;
	packet->is_fin = false;
	packet->is_reset = false;
	packet->has_ack = false;
	packet->resets = false;
	packet->is_proven = true;	/* as far as it can be: nobody shows more */
	packet->is_first = false;
	packet->is_h2 = false;
	packet->is_notice = false;
	return true;
}

/*
 * The identifier of a query, or of its response (RFC 1035, section 4.1.1). A name server answers in any order, and not what it had no
 * room for, and a forwarder sends many queries from one port: each is a flow of its own.
 */
static noinline u16 query_of(const struct sk_buff *skb, int offset, u8 protocol)
{
	const u16 *query;
	u16 room;

	if (protocol != IPPROTO_UDP)
		return 0;
	query = skb_header_pointer(skb, offset + sizeof(struct udphdr), sizeof(room), &room);
	return query ? get_unaligned(query) : 0;
}

/*
 * Reads a packet, and returns its service; NULL when it is none of one that is scheduled. Every packet of the host comes here:
 * compiled once for each direction, and nothing is written before it is known to be one of ours.
 */
static __always_inline struct classes *read_packet(const struct services *services, struct sk_buff *skb, u8 family,
						   bool is_leaving, struct packet *packet)
{
	const struct udphdr *ports;	/* TCP begins with the same ones */
	struct classes *classes;
	u8 protocol;
	int offset;

	offset = transport_offset(skb, family, &protocol);
	if (!offset || (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP))
		return NULL;
	if (!pskb_may_pull(skb, offset + sizeof(*ports)))
		return NULL;
	ports = (const struct udphdr *)(skb->data + offset);
	classes = service_of_port(services, protocol, is_leaving ? ports->source : ports->dest);
	if (!classes)
		return NULL;

	packet->offset = offset;
	packet->key.protocol = protocol;
	packet->key.client_port = is_leaving ? ports->dest : ports->source;
	packet->key.local_port = is_leaving ? ports->source : ports->dest;
	read_ends(skb, family, is_leaving, &packet->key);
	if (unlikely(classes->protocol == TARN_CLASSES_DNS))
		packet->key.query = query_of(skb, offset, protocol);
	packet->bucket = bucket_of(classes, &packet->key);
	if (protocol == IPPROTO_TCP ? !read_tcp(skb, packet) : !read_udp(skb, ports, packet))
		return NULL;
	return classes;
}

/* The class of a packet that may begin a request; the last one is that of clients who are not known. Wants classes.lock. */
static __always_inline u32 class_of_packet(const struct services *services, struct classes *classes, const struct sk_buff *skb,
					   u8 family, const struct packet *packet)
{
	u32 class = TARN_CLASSES_NOBODY;

	if (unlikely(skb->priority >> 16 == TARN_CLASSES_PRIORITY))
		class = skb->priority & 0xffff;
	else if (packet->payload || packet->key.protocol == IPPROTO_UDP)
		class = clients_class(services->clients, &classes->recent, family, &packet->key.client);
	return min(class, classes->count - 1);
}

/* What comes after us at LOCAL_IN. Returns whether the packet is still ours. */
static bool pass_other_hooks(struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct nf_hook_entries *entries;
	struct nf_hook_state rest = *state;
	unsigned int i;

	if (state->pf == NFPROTO_IPV4)
		entries = rcu_dereference(state->net->nf.hooks_ipv4[NF_INET_LOCAL_IN]);
	else
		entries = rcu_dereference(state->net->nf.hooks_ipv6[NF_INET_LOCAL_IN]);
	if (!entries)
		return true;
	for (i = 0; i < entries->num_hook_entries; i++)
		if (nf_hook_entries_get_hook_ops(entries)[i]->priority > NF_IP_PRI_LAST - 1)
			return nf_hook_slow(skb, &rest, entries, i) == 1;
	return true;
}

/* Makes what the packet borrows its own, so that it can wait: -ENOMEM, or -EHOSTUNREACH when its route has gone. */
static struct held *make_held(struct sk_buff *skb, const struct packet *packet, const struct nf_hook_state *state)
{
	struct held *held;

	if (skb_dst(skb) && !skb_dst_force(skb))
		return ERR_PTR(-EHOSTUNREACH);
	held = held_alloc();
	if (!held)
		return ERR_PTR(-ENOMEM);
	if (skb_sk_is_prefetched(skb) && !sk_is_refcounted(skb->sk)) {
		if (refcount_inc_not_zero(&skb->sk->sk_refcnt))
			skb->destructor = sock_edemux;
		else
			skb_orphan(skb);
	}
	netdev_hold(skb->dev, &held->dev_tracker, GFP_ATOMIC);
	held->skb = skb;
	held->okfn = state->okfn;
	held->offset = packet->offset;
	held->seq = packet->seq;
	held->ends_connection = false;
	return held;
}

/* Holds a packet. It is not the caller's any more. */
static noinline void hold(struct classes *classes, struct sk_buff *skb, struct packet *packet, u32 class,
			  const struct nf_hook_state *state)
{
	struct sk_buff *ack = NULL;
	enum arrival arrival;
	LIST_HEAD(dropped);
	struct held *held;
	u64 now;

	if (!pass_other_hooks(skb, state))
		return;
	/* Without a socket, the handshake is one by cookies, and it is the number of the data itself that proves it. */
	if (packet->key.protocol == IPPROTO_TCP && packet->payload && skb->sk)
		ack = ack_of(skb, packet->offset, packet->end_seq);
	if (ack) {
		state->okfn(state->net, NULL, ack);
		/* It may have ended the handshake (TCP_DEFER_ACCEPT, or a client's own that was lost): there is another socket now. */
		if (!sk_fullsock(skb->sk)) {
			skb_orphan(skb);
			connection_of(skb, state, packet);
		}
	}
	packet->has_ack = packet->has_ack && connection_takes_ack(skb->sk, packet);
	held = make_held(skb, packet, state);
	spin_lock_bh(&classes->lock);
	now = ktime_get_ns();
	if (IS_ERR(held)) {
		struct tarn_classes_figures *figures = &classes->class[class].figures;

		++*(held == ERR_PTR(-ENOMEM) ? &figures->dropped_memory : &figures->dropped_gone);
		spin_unlock_bh(&classes->lock);
		kfree_skb(skb);
		return;
	}
	arrival = classes->is_dead ? PASSES : request_hold(classes, packet, class, now, held, &dropped);
	spin_unlock_bh(&classes->lock);
	if (arrival == PASSES) {
		list_add(&held->list, &dropped);
		packets_deliver(state->net, &dropped);
		return;
	}
	packets_drop(state->net, &dropped);
	dispatch_kick(classes);
}

/* What the connection says about a packet that is for us. False: TCP makes nothing of it, or says so itself. */
static bool ask_connection(struct sk_buff *skb, const struct nf_hook_state *state, struct packet *packet)
{
	const struct sock *sk;

	if (packet->key.protocol != IPPROTO_TCP || (!packet->payload && !packet->is_reset))
		return true;
	sk = connection_of(skb, state, packet);
	return connection_ask(sk, packet);
}

/* Data cannot wait where nobody may acknowledge in the client's place. All of such a connection passes, so none overtakes. */
static bool can_wait(struct classes *classes, const struct sk_buff *skb, const struct packet *packet, u32 class)
{
	if (packet->key.protocol != IPPROTO_TCP || !packet->payload || !connection_is_signed(skb->sk, skb, packet))
		return true;
	spin_lock_bh(&classes->lock);
	classes->class[class].figures.unscheduled++;
	spin_unlock_bh(&classes->lock);
	return false;
}

/*
 * Data in a SYN (TCP Fast Open, RFC 7413) would be read before there is a connection that could wait. Without it, TCP acknowledges
 * the SYN alone, and the client sends the data with the end of the handshake, where it is a request as any (section 4.1). A SYN that is
 * signed is signed with its data.
 */
static noinline void drop_data_of_syn(const struct services *services, struct classes *classes, struct sk_buff *skb, u8 family,
				      const struct packet *packet)
{
	if (segment_is_signed(skb, packet)) {
		spin_lock_bh(&classes->lock);
		classes->class[class_of_packet(services, classes, skb, family, packet)].figures.unscheduled++;
		spin_unlock_bh(&classes->lock);
		return;
	}
	if (pskb_trim(skb, packet->payload_offset))
		return;
	skb->ip_summed = CHECKSUM_UNNECESSARY;	/* it was right, over the data too */
	skb->csum_level = 0;
	skb_gso_reset(skb);
}

/*
 * Whether TCP or UDP gives it to one socket. TCP wants a frame for this host alone. UDP does not look at the frame, but at the
 * address: what is for many (broadcast, multicast) each socket has a copy of.
 */
static __always_inline bool is_for_one(const struct sk_buff *skb, u8 family, const struct packet *packet)
{
	if (packet->key.protocol == IPPROTO_TCP)
		return skb->pkt_type == PACKET_HOST;
	if (family == NFPROTO_IPV4)
		return !(skb_rtable(skb)->rt_flags & (RTCF_BROADCAST | RTCF_MULTICAST));
	return !ipv6_addr_is_multicast(&packet->key.local);
}

/* A packet for one of our ports. Returns whether it goes on; else it is not the caller's any more. */
static __always_inline bool goes_on(const struct services *services, struct classes *classes, struct sk_buff *skb, struct packet *packet,
				    const struct nf_hook_state *state)
{
	u32 class, places, waited_places, limit;
	enum arrival arrival;
	bool is_awaited;
	u64 now;

	/*
	 * TCP or UDP drops what is damaged: as a request it would take a place until patience ends, as a reset it would free
	 * that of a request that the service works on.
	 */
	if ((packet->payload || packet->is_reset || packet->is_fin) && is_damaged(skb, state->pf, packet))
		return true;
	if (unlikely(packet->is_syn)) {
		drop_data_of_syn(services, classes, skb, state->pf, packet);
		return true;
	}
	if (!ask_connection(skb, state, packet))
		return true;
	packet->unit = protocol_unit(classes, skb, packet);
	spin_lock_bh(&classes->lock);
	class = class_of_packet(services, classes, skb, state->pf, packet);
	now = ktime_get_ns();
	shares_advance(classes, now);
	places = classes->places;
	waited_places = places - classes->gone_on_places;
	limit = classes->limit.now;
	arrival = classes->is_dead ? PASSES : request_arrive(classes, packet, class, now);
	/* A reset has freed one, or a connection that has waited for its place goes on, and what it took has raised the limit. */
	is_awaited = classes->waiting && (classes->places < places || classes->limit.now > limit ||
					  classes->places - classes->gone_on_places < waited_places);
	/* A reset may have left a place that is free before anything else happens. */
	if (arrival == PASSES && (packet->resets || !READ_ONCE(classes->timer_runs)))
		dispatch_arm(classes, now);
	spin_unlock_bh(&classes->lock);
	if (is_awaited)
		dispatch_kick(classes);
	if (arrival == PASSES || !can_wait(classes, skb, packet, class))
		return true;
	hold(classes, skb, packet, class, state);
	return false;
}

/* One of several datagrams that came as one packet, in a packet of its own. */
static noinline void take_datagram(const struct services *services, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct packet packet not_zeroed;
	struct classes *classes = read_packet(services, skb, state->pf, false, &packet);

	if (classes && !goes_on(services, classes, skb, &packet, state))
		return;
	if (pass_other_hooks(skb, state))
		state->okfn(state->net, NULL, skb);
}

static unsigned int local_in(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct packet packet not_zeroed;
	struct sk_buff *datagram, *next;
	struct classes *classes;

	classes = read_packet(priv, skb, state->pf, false, &packet);
	if (!classes || !is_for_one(skb, state->pf, &packet))
		return NF_ACCEPT;
	if (unlikely(has_datagrams(skb, &packet))) {
		datagram = datagrams_split(skb);
		if (datagram) {
			skb_list_walk_safe(datagram, datagram, next) {
				skb_mark_not_on_list(datagram);
				take_datagram(priv, datagram, state);
			}
			return NF_STOLEN;
		}
	}
	return goes_on(priv, classes, skb, &packet, state) ? NF_ACCEPT : NF_STOLEN;
}

/*
 * TCP sends again what was not acknowledged: the service has said nothing new, and it is no answer to what has come since. What is new
 * begins at `snd_nxt`, which goes on when it has left.
 */
static bool is_sent_again(const struct sk_buff *skb, const struct packet *packet)
{
	const struct sock *sk = skb->sk;

	return packet->payload && sk && sk_fullsock(sk) && sk_is_tcp(sk) && before(packet->seq, READ_ONCE(tcp_sk(sk)->snd_nxt));
}

static unsigned int local_out(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct packet packet not_zeroed;
	struct classes *classes;
	bool is_awaited;
	u64 now;

	classes = read_packet(priv, skb, state->pf, true, &packet);
	if (!classes || packet.is_syn)
		return NF_ACCEPT;
	/* Its end may be new: short of memory, TCP puts it behind data that has left already. */
	if (is_sent_again(skb, &packet))
		packet.payload = 0;
	if (!packet.payload && !packet.is_reset && !packet.is_fin)
		return NF_ACCEPT;
	spin_lock_bh(&classes->lock);
	now = ktime_get_ns();
	shares_advance(classes, now);
	request_answer(classes, skb, &packet, now);
	is_awaited = classes->waiting;
	spin_unlock_bh(&classes->lock);
	if (is_awaited)
		dispatch_kick(classes);
	return NF_ACCEPT;
}

static const struct nf_hook_ops hooks[] = {
	{ .hook = local_in, .pf = NFPROTO_IPV4, .hooknum = NF_INET_LOCAL_IN, .priority = NF_IP_PRI_LAST - 1 },
	{ .hook = local_in, .pf = NFPROTO_IPV6, .hooknum = NF_INET_LOCAL_IN, .priority = NF_IP_PRI_LAST - 1 },
	{ .hook = local_out, .pf = NFPROTO_IPV4, .hooknum = NF_INET_LOCAL_OUT, .priority = NF_IP_PRI_FIRST },
	{ .hook = local_out, .pf = NFPROTO_IPV6, .hooknum = NF_INET_LOCAL_OUT, .priority = NF_IP_PRI_FIRST },
};

int hooks_register(struct services *services)
{
	unsigned int i;
	int error;

	BUILD_BUG_ON(ARRAY_SIZE(hooks) != ARRAY_SIZE(services->hooks));
	error = nf_defrag_ipv6_enable(services->net);
	if (error)
		return error;
	memcpy(services->hooks, hooks, sizeof(hooks));
	for (i = 0; i < ARRAY_SIZE(hooks); i++)
		services->hooks[i].priv = services;
	error = nf_register_net_hooks(services->net, services->hooks, ARRAY_SIZE(hooks));
	if (error)
		nf_defrag_ipv6_disable(services->net);
	return error;
}

void hooks_unregister(struct services *services)
{
	nf_unregister_net_hooks(services->net, services->hooks, ARRAY_SIZE(hooks));
	nf_defrag_ipv6_disable(services->net);
	synchronize_net();
}
