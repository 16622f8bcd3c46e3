/* SPDX-License-Identifier: GPL-2.0 */
/* The acknowledgement that a waiting TCP segment carries must not wait with it. */
#ifndef TARN_CLASSES_ACK_H
#define TARN_CLASSES_ACK_H

#include <linux/skbuff.h>

/*
 * The acknowledgement that a client would send behind this segment, whose data ends at `end_seq`. NULL when there is no
 * memory for it. `offset` is that of the TCP header; skb->data points to the IP header.
 */
struct sk_buff *ack_of(const struct sk_buff *skb, unsigned int offset, u32 end_seq);

#endif
