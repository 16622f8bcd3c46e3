// SPDX-License-Identifier: GPL-2.0
/* See checksum.h. */
#include <linux/netfilter.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip6_checksum.h>

#include "checksum.h"

/* The checksum of a datagram that ends before its packet does, which nf_checksum() would not notice. */
static bool is_sum_wrong(const struct sk_buff *skb, u8 family, u32 offset, u32 length)
{
	__wsum sum = skb_checksum(skb, offset, length, 0);

	if (family == NFPROTO_IPV4)
		return csum_tcpudp_magic(ip_hdr(skb)->saddr, ip_hdr(skb)->daddr, length, IPPROTO_UDP, sum);
	return csum_ipv6_magic(&ipv6_hdr(skb)->saddr, &ipv6_hdr(skb)->daddr, length, IPPROTO_UDP, sum);
}

/*
 * Zero says that a datagram has no checksum (RFC 768). Over IPv6, sockets take such datagrams when they were told to (RFC
 * 6935); to others they are lost like any that a service does not answer.
 */
static bool has_checksum(const struct sk_buff *skb, u32 offset)
{
	struct udphdr room;
	const struct udphdr *udp = skb_header_pointer(skb, offset, sizeof(room), &room);

	return udp && udp->check;
}

bool has_wrong_sum(struct sk_buff *skb, u8 family, const struct packet *packet)
{
	if (packet->key.protocol == IPPROTO_UDP) {
		u32 length = packet->payload + sizeof(struct udphdr);

		if (!has_checksum(skb, packet->offset))
			return false;
		if (length < skb->len - packet->offset)
			return is_sum_wrong(skb, family, packet->offset, length);
	}
	return nf_checksum(skb, NF_INET_LOCAL_IN, packet->offset, packet->key.protocol, family);
}
