/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What core.c and memory.c need of their surroundings: of the kernel in the module, of the C library in the tests, the fuzzer
 * and the table in user space. A packet is an sk_buff there and a small structure of the test's own here.
 */
#ifndef TARN_REASSEMBLY_PLAIN_H
#define TARN_REASSEMBLY_PLAIN_H

#ifdef __KERNEL__

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/list.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/types.h>

#define core_packet sk_buff

#define plain_zalloc(size) kzalloc(size, GFP_ATOMIC | __GFP_NOWARN)
#define plain_free(pointer) kfree(pointer)

#else

#include "plain_user.h"

#endif

/* Where in a datagram a packet's bytes belong; in the packet's control block. */
struct piece {
	u16 offset;
	u16 length;
};

#ifdef __KERNEL__

/* IP's own state, struct inet_skb_parm or inet6_skb_parm, comes first in the control block and is kept. */
#define PIECE_AT 44

static inline struct piece *piece_of(struct sk_buff *skb)
{
	BUILD_BUG_ON(PIECE_AT + sizeof(struct piece) > sizeof(skb->cb));
	return (struct piece *)(skb->cb + PIECE_AT);
}

#else

struct core_packet {
	struct core_packet *next;
	struct piece piece;
	u32 tag;
};

static inline struct piece *piece_of(struct core_packet *packet)
{
	return &packet->piece;
}

#endif
#endif
