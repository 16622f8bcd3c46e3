/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a client would say by a segment without data, in whose place we say it: the acknowledgement that a waiting segment carries
 * must not wait with it; and a connection whose request is dropped for good is at its end.
 */
#ifndef TARN_CLASSES_ACK_H
#define TARN_CLASSES_ACK_H

#include <linux/skbuff.h>

/*
 * The acknowledgement that a client would send behind this segment, whose data ends at `end_seq`. NULL when there is no
 * memory for it. `offset` is that of the TCP header; skb->data points to the IP header.
 */
struct sk_buff *ack_of(const struct sk_buff *skb, unsigned int offset, u32 end_seq);

/* The reset that it would send instead of this segment; or NULL, as above. */
struct sk_buff *reset_of(const struct sk_buff *skb, unsigned int offset, u32 seq);

#endif
