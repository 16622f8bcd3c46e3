// SPDX-License-Identifier: GPL-2.0
/*
 * Fragments as a driver hands them up: at the network header, in a linear buffer of their own.
 */
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

#include "bench.h"

/* What drivers leave in front. */
#define HEADROOM 64

/* Numerical Recipes' generator: the same orders in every run. Only its upper bits are used. */
static u32 next_random(void)
{
	static u32 state = 1;

	state = state * 1664525 + 1013904223;
	return state >> 8;
}

static void shuffle(u32 *places, u32 count)
{
	u32 last;

	/* Fisher-Yates */
	for (last = count - 1; last > 0; last--) {
		u32 other = next_random() % (last + 1);

		swap(places[last], places[other]);
	}
}

void bench_places(const struct bench_load *load, u32 *places)
{
	u32 n = load->fragments, i;

	for (i = 0; i < n; i++) {
		switch (load->order) {
		case BENCH_REVERSE:
			places[i] = n - 1 - i;
			break;
		case BENCH_HALVES:
			places[i] = i & 1 ? (n + 1) / 2 + i / 2 : i / 2;
			break;
		default:
			places[i] = i;
		}
	}
	if (load->order == BENCH_RANDOM)
		shuffle(places, n);
}

static void put_ipv4(struct sk_buff *skb, const struct bench_load *load, u32 datagram, u32 index)
{
	bool more = index + 1 < load->fragments;
	struct iphdr *header;

	header = skb_put_zero(skb, sizeof(*header));
	header->version = 4;
	header->ihl = sizeof(*header) / 4;
	header->tot_len = htons(sizeof(*header) + load->size);
	header->id = htons(datagram);
	header->frag_off = htons(index * load->size / 8 | (more ? IP_MF : 0));
	header->ttl = 64;
	header->protocol = IPPROTO_UDP;
	header->saddr = htonl(INADDR_LOOPBACK + 1);
	header->daddr = htonl(INADDR_LOOPBACK);
	ip_send_check(header);
	skb_set_transport_header(skb, sizeof(*header));
	skb->protocol = htons(ETH_P_IP);
}

static void put_ipv6(struct sk_buff *skb, const struct bench_load *load, u32 datagram, u32 index)
{
	bool more = index + 1 < load->fragments;
	struct frag_hdr *fragment;
	struct ipv6hdr *header;

	header = skb_put_zero(skb, sizeof(*header));
	header->version = 6;
	header->payload_len = htons(sizeof(*fragment) + load->size);
	header->nexthdr = NEXTHDR_FRAGMENT;
	header->hop_limit = 64;
	header->saddr.s6_addr16[0] = htons(0xfd00);
	header->saddr.s6_addr16[7] = htons(2);
	header->daddr = in6addr_loopback;
	fragment = skb_put_zero(skb, sizeof(*fragment));
	fragment->nexthdr = IPPROTO_UDP;
	fragment->frag_off = htons(index * load->size | (more ? IP6_MF : 0));
	fragment->identification = htonl(datagram);
	skb_set_transport_header(skb, sizeof(*header));
	skb->protocol = htons(ETH_P_IPV6);
	/* As ipv6_rcv leaves it for the hooks. */
	IP6CB(skb)->iif = init_net.loopback_dev->ifindex;
	IP6CB(skb)->nhoff = offsetof(struct ipv6hdr, nexthdr);
}

struct sk_buff *bench_fragment(const struct bench_load *load, u32 datagram, u32 index)
{
	u32 headers = sizeof(struct ipv6hdr) + sizeof(struct frag_hdr);
	struct sk_buff *skb;

	skb = alloc_skb(HEADROOM + ETH_HLEN + headers + load->size, GFP_KERNEL);
	if (!skb)
		return NULL;
	skb_reserve(skb, HEADROOM);
	skb_reset_mac_header(skb);
	skb_reserve(skb, ETH_HLEN);
	skb_reset_network_header(skb);
	skb_reset_mac_len(skb);
	if (load->family == AF_INET)
		put_ipv4(skb, load, datagram, index);
	else
		put_ipv6(skb, load, datagram, index);
	skb_put_zero(skb, load->size);
	skb->dev = init_net.loopback_dev;
	skb->skb_iif = skb->dev->ifindex;
	skb->pkt_type = PACKET_HOST;
	return skb;
}

bool bench_is_whole(const struct bench_load *load, const struct sk_buff *skb)
{
	u32 header = load->family == AF_INET ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	return skb->len == header + load->fragments * load->size;
}
