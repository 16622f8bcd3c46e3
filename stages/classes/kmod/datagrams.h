/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Several datagrams in one packet. UDP_SEGMENT makes such packets, and a neighbour over veth sends them as they are; GRO makes them of
 * what any client sends, for services with UDP_GRO. Each datagram is a request of its own: as one, all would enter the service at once.
 * So they are taken apart before they are looked at, as UDP does it for sockets without UDP_GRO.
 */
#ifndef TARN_CLASSES_DATAGRAMS_H
#define TARN_CLASSES_DATAGRAMS_H

#include <linux/skbuff.h>

#include "requests.h"

static inline bool has_datagrams(const struct sk_buff *skb, const struct packet *packet)
{
	return packet->key.protocol == IPPROTO_UDP && skb_is_gso(skb) &&
	       skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST);
}

/*
 * The datagrams of a packet at LOCAL_IN, as a list of packets in its place; NULL when it cannot be done, and the packet is the caller's
 * as before.
 */
struct sk_buff *datagrams_split(struct sk_buff *skb);

#endif
