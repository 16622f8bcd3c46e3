/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TARN_REASSEMBLY_IPV4_H
#define TARN_REASSEMBLY_IPV4_H

#include "arrive.h"

/* An IPv4 packet that is a fragment, from its IP header on, of a valid header: what IP has checked before PRE_ROUTING. */
enum arrival reassembly_ipv4(struct reassembly *here, struct sk_buff *skb);

#endif
