// SPDX-License-Identifier: GPL-2.0
/* What is IPv4's own. */
#include <linux/ip.h>
#include <net/inet_ecn.h>
#include <net/inet_frag.h>
#include <net/ip.h>

#include "compat.h"
#include "glue.h"
#include "ipv4.h"
#include "zone.h"

/* In which of the host's networks the datagram is. */
static __always_inline u64 place_of(const struct sk_buff *skb)
{
	return network_of(skb) | vrf_of(skb->dev);
}

static __always_inline void read_header(const struct reassembly *here, const struct sk_buff *skb, struct fragment *fragment)
{
	const struct hash_numbers *numbers = &here->numbers;
	const struct iphdr *ip = ip_hdr(skb);
	u16 position = ntohs(ip->frag_off);
	u64 sum;

	fragment->key.word[0] = (u64)(__force u32)ip->daddr << 32 | (__force u32)ip->saddr;
	fragment->key.word[1] = (__force u16)ip->id | (u32)ip->protocol << 16;
	fragment->key.word[2] = place_of(skb);
	fragment->source.address = (__force u32)ip->saddr;
	fragment->source.family = AF_INET;
	sum = sum_half(numbers, sum_begin(numbers), 0, 0, (__force u32)ip->saddr);
	fragment->source_hash = sum_hash(sum);
	sum = sum_half(numbers, sum, 0, 1, (__force u32)ip->daddr);
	sum = sum_half(numbers, sum, 1, 0, fragment->key.word[1]);
	fragment->hash = sum_hash(sum_word(numbers, sum, 2, fragment->key.word[2]));
	fragment->headers = ip->ihl * 4;
	fragment->counted = fragment->headers;
	fragment->offset = (position & IP_OFFSET) * 8;
	fragment->more = position & IP_MF;
	fragment->is_whole = position & IP_DF;
	fragment->length = skb->len - skb_network_offset(skb) - fragment->headers;
	fragment->size = fragment->length + fragment->headers;
	fragment->ecn = 1 << (ip->tos & INET_ECN_MASK);
	fragment->is_second = false;
}

enum arrival reassembly_ipv4(struct reassembly *here, struct sk_buff *skb)
{
	struct fragment fragment not_zeroed;
	enum arrival arrival;

	read_header(here, skb, &fragment);
	arrival = arrive(here, skb, &fragment, false);
	if (likely(arrival != ARRIVAL_PASSES))
		__IP_INC_STATS(here->net, IPSTATS_MIB_REASMREQDS);
	return arrival;
}

/*
 * Where the largest fragment had DF, its sender looks for the path's MTU: a router must not send larger ones on, and says so. It is
 * not set where only a small one had it, which would have the rest sent in small ones.
 */
void ipv4_finish(struct net *net, struct datagram *datagram, struct sk_buff *skb)
{
	struct iphdr *ip = ip_hdr(skb);

	IPCB(skb)->frag_max_size = max(datagram->largest_whole, datagram->largest);
	ip->tot_len = htons(skb->len);
	ip->tos |= ip_frag_ecn_table[datagram->ecn];
	ip->frag_off = 0;
	if (datagram->largest_whole == datagram->largest) {
		IPCB(skb)->flags |= IPSKB_FRAG_PMTU;
		ip->frag_off = htons(IP_DF);
	}
	ip_send_check(ip);
	__IP_INC_STATS(net, IPSTATS_MIB_REASMOKS);
}
