/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TARN_REASSEMBLY_IPV6_H
#define TARN_REASSEMBLY_IPV6_H

#include "arrive.h"

/* An IPv6 packet, from its IPv6 header on; one without a fragment header passes. */
enum arrival reassembly_ipv6(struct reassembly *here, struct sk_buff *skb);

#endif
