/* SPDX-License-Identifier: GPL-2.0 */
/* Makes one packet of the fragments of a whole datagram. */
#ifndef TARN_REASSEMBLY_GLUE_H
#define TARN_REASSEMBLY_GLUE_H

#include "reassembly.h"

/*
 * `skb` is the fragment that came last, and becomes the datagram: the caller's pointer stays valid. The others are in its frag_list,
 * not coalesced, so that a router can send them on in their sizes. Without memory, everything is freed, skb included, and an
 * error is returned. No lock is needed: nobody else finds the datagram any more.
 */
int glue(struct net *net, struct datagram *datagram, struct sk_buff *skb);

/* What the family's headers say of the whole: in ipv4.c and ipv6.c. */
void ipv4_finish(struct net *net, struct datagram *datagram, struct sk_buff *skb);
void ipv6_finish(struct net *net, struct datagram *datagram, struct sk_buff *skb);
void ipv6_leave_out(struct sk_buff *skb, u32 headers);

#endif
