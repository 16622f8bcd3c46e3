// SPDX-License-Identifier: GPL-2.0
/* What is IPv6's own. */
#include <linux/ipv6.h>
#include <net/addrconf.h>
#include <net/inet_ecn.h>
#include <net/inet_frag.h>
#include <net/ip6_checksum.h>
#include <net/ipv6.h>
#include <net/ipv6_frag.h>

#include "compat.h"
#include "glue.h"
#include "ipv6.h"
#include "zone.h"

/* Extension headers before the fragment header, at most; RFC 8200 has three. */
#define HEADERS_MOST 16

/*
 * Finds the fragment header: `at`, from the IPv6 header on, and `named`, where the field is that names it. False: there is none, or
 * it is not for us to see: behind ESP, AH or an unknown header, or with a routing header that has not reached its end.
 */
static __always_inline bool find_header(const struct sk_buff *skb, u32 *at, u32 *named)
{
	u8 next = ipv6_hdr(skb)->nexthdr;
	u32 i;

	*at = sizeof(struct ipv6hdr);
	*named = offsetof(struct ipv6hdr, nexthdr);
	for (i = 0; i < HEADERS_MOST; i++) {
		struct ipv6_rt_hdr copy, *header;

		if (next == NEXTHDR_FRAGMENT)
			return true;
		if (next != NEXTHDR_HOP && next != NEXTHDR_ROUTING && next != NEXTHDR_DEST)
			return false;
		header = skb_header_pointer(skb, skb_network_offset(skb) + *at, sizeof(copy), &copy);
		if (!header)
			return false;
		/* It is on its way through us. */
		if (next == NEXTHDR_ROUTING && header->segments_left)
			return false;
		*named = *at;
		next = header->nexthdr;
		*at += ipv6_optlen(header);
	}
	return false;
}

/* ipv6_addr_type() says so, too, with all else that an address can be: it is a function of the kernel's, and not written out. */
static __always_inline bool is_link_local(const struct in6_addr *address)
{
	return (address->s6_addr32[0] & htonl(0xffc00000)) == htonl(0xfe800000);
}

/* Link-local addresses are those of a device; the others are those of a VRF, or of the host. */
static __always_inline u64 place_of(const struct sk_buff *skb)
{
	const struct in6_addr *destination = &ipv6_hdr(skb)->daddr;
	bool is_of_device = ipv6_addr_is_multicast(destination) || is_link_local(destination);
	u32 device = is_of_device ? skb->dev->ifindex : vrf_of(skb->dev);

	return network_of(skb) | device;
}

static __always_inline void read_addresses(const struct reassembly *here, const struct sk_buff *skb, __be32 id,
					   struct fragment *fragment)
{
	const struct hash_numbers *numbers = &here->numbers;
	const struct ipv6hdr *ip = ipv6_hdr(skb);
	u64 *word = fragment->key.word, sum;
	u32 i;

	memcpy(&word[0], &ip->saddr, sizeof(ip->saddr));
	memcpy(&word[2], &ip->daddr, sizeof(ip->daddr));
	word[4] = (__force u32)id;
	word[5] = place_of(skb);
	fragment->source.address = word[0];
	fragment->source.family = AF_INET6;
	sum = sum_word(numbers, sum_begin(numbers), 0, word[0]);
	fragment->source_hash = sum_hash(sum);
	for (i = 1; i < KEY_WORDS; i++)
		sum = sum_word(numbers, sum, i, word[i]);
	fragment->hash = sum_hash(sum);
}

/*
 * What is left to the stack: a fragment that is whole by itself and belongs to no other (RFC 6946), and a first one without the
 * whole header chain (RFC 7112), which the stack refuses with an ICMPv6 message.
 */
static bool is_for_stack(struct sk_buff *skb, const struct frag_hdr *header, u32 at)
{
	u8 next = NEXTHDR_FRAGMENT;	/* what is at `at` */

	if (!(header->frag_off & htons(IP6_OFFSET | IP6_MF)))
		return true;
	return !(header->frag_off & htons(IP6_OFFSET)) && ipv6frag_thdr_truncated(skb, at, &next);
}

enum arrival reassembly_ipv6(struct reassembly *here, struct sk_buff *skb)
{
	u32 start = skb_network_offset(skb), at, named;
	const struct frag_hdr *header;
	struct fragment fragment not_zeroed;
	enum arrival arrival;
	struct inet6_dev *idev;
	u16 position;

	/* Whoever has a length of 0, as a jumbogram, must have no fragment header (RFC 2675); the stack says so. */
	if (!ipv6_hdr(skb)->payload_len)
		return ARRIVAL_PASSES;
	if (!find_header(skb, &at, &named) || !pskb_may_pull(skb, start + at + sizeof(*header)))
		return ARRIVAL_PASSES;
	header = (const struct frag_hdr *)(skb_network_header(skb) + at);
	if (is_for_stack(skb, header, start + at))
		return ARRIVAL_PASSES;
	header = (const struct frag_hdr *)(skb_network_header(skb) + at);
	position = ntohs(header->frag_off);
	read_addresses(here, skb, header->identification, &fragment);
	fragment.headers = at + sizeof(*header);
	fragment.counted = at - sizeof(struct ipv6hdr);
	fragment.offset = position & IP6_OFFSET;
	fragment.more = position & IP6_MF;
	fragment.is_whole = false;
	fragment.size = skb->len - start;
	fragment.length = fragment.size - fragment.headers;
	fragment.size = min_t(u32, fragment.size, U16_MAX);	/* `largest` */
	fragment.ecn = 1 << (ipv6_get_dsfield(ipv6_hdr(skb)) & INET_ECN_MASK);
	fragment.is_second = true;
	idev = __in6_dev_get(skb->dev);
	arrival = arrive(here, skb, &fragment, true);
	if (likely(arrival != ARRIVAL_PASSES))
		__IP6_INC_STATS(here->net, idev, IPSTATS_MIB_REASMREQDS);
	return arrival;
}

/* The sum of all that was received covers the headers, too: each fragment's are left out, and those of the whole come in. */
void ipv6_leave_out(struct sk_buff *skb, u32 headers)
{
	if (skb->ip_summed == CHECKSUM_COMPLETE)
		skb->csum = csum_sub(skb->csum, csum_partial(skb_network_header(skb), headers, 0));
}

/* Takes the fragment header out: what is before it moves, because the data behind is longer. */
static u32 remove_header(struct sk_buff *skb)
{
	u8 *network = skb_network_header(skb), *start = network;
	u32 at, named;

	if (!find_header(skb, &at, &named))
		return sizeof(struct ipv6hdr);	/* it was there when the fragment was taken */
	network[named] = network[at];
	if (skb_mac_header_was_set(skb)) {
		start = skb_mac_header(skb);
		skb->mac_header += sizeof(struct frag_hdr);
	}
	memmove(start + sizeof(struct frag_hdr), start, network + at - start);
	skb->network_header += sizeof(struct frag_hdr);
	skb->transport_header += sizeof(struct frag_hdr);
	__skb_pull(skb, sizeof(struct frag_hdr));
	return at;
}

void ipv6_finish(struct net *net, struct datagram *datagram, struct sk_buff *skb)
{
	u32 headers = remove_header(skb);
	struct ipv6hdr *ip = ipv6_hdr(skb);

	IP6CB(skb)->frag_max_size = datagram->largest;
	IP6CB(skb)->flags |= IP6SKB_FRAGMENTED;
	ip->payload_len = htons(skb->len - sizeof(*ip));
	ipv6_change_dsfield(ip, 0xff, ip_frag_ecn_table[datagram->ecn]);
	if (skb->ip_summed == CHECKSUM_COMPLETE)
		skb->csum = csum_partial(ip, headers, skb->csum);
	__IP6_INC_STATS(net, __in6_dev_get(skb->dev), IPSTATS_MIB_REASMOKS);
}
