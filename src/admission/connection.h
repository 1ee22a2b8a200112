/*
 * connection.h
 *		PostgreSQL's headers of the client's connection.
 *
 * These headers include GSSAPI's and OpenSSL's headers if the server was built with them.  The
 * layout of Port is the same without.
 */
#ifndef KV_ADMISSION_CONNECTION_H
#define KV_ADMISSION_CONNECTION_H

#ifdef ENABLE_GSS
#define KV_SERVER_HAS_GSS
#undef ENABLE_GSS
#endif
#if defined(USE_OPENSSL) && !__has_include(<openssl/ssl.h>)
#undef USE_OPENSSL
#undef USE_SSL
#endif

#include "libpq/auth.h"
#include "libpq/libpq.h"

#endif							/* KV_ADMISSION_CONNECTION_H */
