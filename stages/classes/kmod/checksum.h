/* SPDX-License-Identifier: GPL-2.0 */
/* Whether a packet is as it was sent, by its checksum. TCP or UDP drops one that is not. */
#ifndef TARN_CLASSES_CHECKSUM_H
#define TARN_CLASSES_CHECKSUM_H

#include <linux/skbuff.h>

#include "requests.h"

bool has_wrong_sum(struct sk_buff *skb, u8 family, const struct packet *packet);

/* A packet on its way in; what this finds out is kept in it, so that TCP or UDP need not do it again. */
static inline bool is_damaged(struct sk_buff *skb, u8 family, const struct packet *packet)
{
	return !skb_csum_unnecessary(skb) && has_wrong_sum(skb, family, packet);
}

#endif
