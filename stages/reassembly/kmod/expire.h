/* SPDX-License-Identifier: GPL-2.0 */
/* What a sender is told when its datagram did not arrive in time. */
#ifndef TARN_REASSEMBLY_EXPIRE_H
#define TARN_REASSEMBLY_EXPIRE_H

#include <linux/skbuff.h>

/*
 * Counts the timeout and, when the first fragment is there and the datagram was for this host, sends ICMP "fragment reassembly time
 * exceeded" (RFC 792; RFC 4443, 3.3), as the stack would. Frees `packets`, a chain in any order; `first` is one of them, or NULL.
 */
void tell_sender(struct net *net, struct sk_buff *packets, struct sk_buff *first, u32 device, bool is_second);

#endif
