/* SPDX-License-Identifier: GPL-2.0 */
/* What TCP knows of the connection that a segment with data belongs to. */
#ifndef TARN_CLASSES_CONNECTION_H
#define TARN_CLASSES_CONNECTION_H

#include <linux/skbuff.h>

#include "requests.h"

/* For a packet that early demultiplexing has left without. */
const struct sock *connection_find(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet);

/*
 * The connection's socket, found as early demultiplexing finds it, and with the packet from then on: TCP does not look for it
 * again. NULL: there is none, or not yet, as in a handshake by SYN cookies whose last acknowledgement was lost. Wants RCU.
 */
static inline const struct sock *connection_of(struct sk_buff *skb, const struct nf_hook_state *state, const struct packet *packet)
{
	return likely(skb->sk) ? skb->sk : connection_find(skb, state, packet);
}

/*
 * Whether TCP will give data of the segment to the service. Not what the service has already: it has answered, and answers no
 * second time to what is sent again, or to the byte that some clients send to see whether the connection lives. Not what is
 * outside the window, which TCP refuses. And nothing that comes when the service has closed its side, such as TLS's close_notify.
 * A reset is always wanted.
 *
 * Says in the packet, too: `is_proven`, its client has shown that it is at its address, by a handshake that is complete; `is_first`, the
 * service has got nothing of it yet, but for what a signed SYN may have brought (TCP Fast Open), which passes; `resets`, TCP takes the
 * segment's RST for one: numbers that are only near get an acknowledgement (RFC 5961, section 3).
 */
bool connection_ask(const struct sock *sk, struct packet *packet);

/*
 * Whether TCP takes what the segment acknowledges: nothing that was not sent yet (RFC 9293, section 3.10.7.4), and nothing from before what
 * the client can have seen (RFC 5961, section 5.2; a window, but not from before the connection began). Who has only guessed a sequence
 * number within the window does not know it. A segment that TCP will not take for that is no reason to let it pass: TCP does not look at
 * old acknowledgements where all else is as it expects (header prediction), and what it has sent may be more by the time it looks.
 */
bool connection_takes_ack(const struct sock *sk, const struct packet *packet);

/*
 * Whether a reset at `seq` ends it, and nothing else is lost with it: it is the number that TCP expects next, so that nobody who has only
 * guessed one within its window ends it (RFC 5961, section 3.2), and the client has all that was sent to it.
 */
bool connection_may_end(const struct sock *sk, u32 seq);

/*
 * Whether its segments are signed (TCP-MD5, RFC 2385; TCP-AO, RFC 5925), so that nobody can acknowledge in its client's place. As long as
 * there is only a handshake, it is the segment itself that shows it.
 */
bool connection_is_signed(const struct sock *sk, const struct sk_buff *skb, const struct packet *packet);

/* Whether the segment is. TCP drops one that is where its connection is not, so nobody gets by so. */
bool segment_is_signed(const struct sk_buff *skb, const struct packet *packet);

#endif
