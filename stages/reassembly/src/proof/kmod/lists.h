/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The datagram's fragments in a list, as Linux 2.2.12 had them, and as the paper changed that.
 */
#ifndef TARN_REASSEMBLY_LISTS_H
#define TARN_REASSEMBLY_LISTS_H

#include <linux/skbuff.h>

enum lists_strategy {
	LISTS_NONE,
	/* Linux 2.2.12: the place is searched from the head of the list. */
	LISTS_HEAD,
	/* The paper: from its tail, and the last fragment needs no search. */
	LISTS_TAIL,
};

/* Begins with nothing held. */
void lists_begin(enum lists_strategy strategy);
/* Frees what is held. No more fragments may come. */
void lists_end(void);
/* Takes an IPv4 fragment; 0 when @skb is the whole datagram now, else it is gone. */
int lists_take(struct sk_buff *skb);
/* Comparisons of offsets since the beginning. */
u64 lists_comparisons(void);

#endif
