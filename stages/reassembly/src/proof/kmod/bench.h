/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the bench share.
 */
#ifndef TARN_REASSEMBLY_BENCH_H
#define TARN_REASSEMBLY_BENCH_H

#include <linux/skbuff.h>
#include <linux/types.h>

/* The order in which the fragments of a datagram arrive. */
enum bench_order {
	BENCH_IN_ORDER,
	BENCH_REVERSE,
	BENCH_RANDOM,
	/* Two halves, a fragment of each in turn. */
	BENCH_HALVES,
};

/* Datagrams to be put together. */
struct bench_load {
	u8 family;		/* AF_INET or AF_INET6 */
	u32 fragments;		/* of each */
	u32 size;		/* bytes of each fragment, a multiple of 8 */
	enum bench_order order;
};

/* Which fragment arrives at place @place. */
void bench_places(const struct bench_load *load, u32 *places);
struct sk_buff *bench_fragment(const struct bench_load *load, u32 datagram, u32 index);
/* Whether @skb is the whole datagram. */
bool bench_is_whole(const struct bench_load *load, const struct sk_buff *skb);

#endif
