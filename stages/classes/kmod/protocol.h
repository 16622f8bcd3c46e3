/* SPDX-License-Identifier: GPL-2.0 */
/* What the first bytes of a packet say about what its service speaks, and so about what a request is there. */
#ifndef TARN_CLASSES_PROTOCOL_H
#define TARN_CLASSES_PROTOCOL_H

#include "requests.h"

enum unit protocol_read_unit(const struct classes *classes, const struct sk_buff *skb, struct packet *packet);
enum answer protocol_read_answer(const struct classes *classes, const struct sk_buff *skb, const struct packet *packet, bool is_session);

/* Whether the service has spoken TLS or HTTP/2 at the packet's port. */
static inline bool protocol_has_sessions(const struct classes *classes, const struct packet *packet)
{
	u32 port = ntohs(packet->key.local_port);

	return test_bit(port, classes->speaks_tls) || test_bit(port, classes->speaks_h2);
}

/* What data from a client is, where none of its flow's requests is here. Most is not read for it. */
static __always_inline enum unit protocol_unit(const struct classes *classes, const struct sk_buff *skb, struct packet *packet)
{
	u32 protocol = classes->protocol;

	if (packet->key.protocol == IPPROTO_UDP && protocol != TARN_CLASSES_DNS && protocol != TARN_CLASSES_CONNECTION)
		return UNIT_EXCHANGE;
	if (packet->key.protocol == IPPROTO_TCP && !packet->payload)
		return UNIT_NONE;
	if (packet->key.protocol == IPPROTO_TCP && !packet->is_first && protocol != TARN_CLASSES_CONNECTION &&
	    !protocol_has_sessions(classes, packet))
		return UNIT_EXCHANGE;
	return protocol_read_unit(classes, skb, packet);
}

/* What data for a client is; `is_session`: of a connection that is a request as a whole, and not of an exchange. */
static __always_inline enum answer protocol_answer(const struct classes *classes, const struct sk_buff *skb,
						   const struct packet *packet, bool is_session)
{
	if (packet->key.protocol != IPPROTO_TCP || !packet->payload)
		return ANSWER_WHOLE;
	return protocol_read_answer(classes, skb, packet, is_session);
}

#endif
