# Follows a slot over a replication connection of psycopg2, as programs do that know nothing of kvfdw: with output plugin
# kvfdw, or with pgoutput and messages, as Debezium does.  Prints one line for each change until a key "end" is put; confirms
# what it has printed.  Arguments: a connection string, a slot, its plugin.
import json
import struct
import sys

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

dsn, slot, plugin = sys.argv[1:]
conn = psycopg2.connect(dsn, connection_factory=LogicalReplicationConnection)
cur = conn.cursor()


# A change of a table with a text key and one text column: the body of a message, perhaps of several.
class Body:
    def __init__(self):
        self.part = b''

    def take(self, body):
        version, kind, flags, form, relid, keylen, valuelen = struct.unpack('>BcBBIII', body[:16])
        assert version == 1 and bool(flags & 2) == bool(self.part)
        self.part += body[16:]
        if flags & 1:
            return None
        whole, self.part = self.part, b''
        assert len(whole) == keylen + valuelen
        op = {b'P': 'put', b'D': 'delete', b'T': 'truncate'}[kind]
        value = whole[keylen:].decode() if op == 'put' and form == 0 else None
        return op, whole[:keylen].decode(), value


body = Body()


def show(change):
    op, key, value = change
    print(op, key, value if value is None or len(value) < 50 else f'{value[:5]}… {len(value)}', flush=True)
    return op == 'put' and key == 'end'


# What a message of the protocol shows; True: it is the last.
def with_kvfdw(payload):
    line = json.loads(payload)
    if line['op'] in ('put', 'delete', 'truncate'):
        return show((line['op'], line.get('key', {}).get('k', ''), line.get('row', {}).get('v')))
    return False


def with_pgoutput(payload):
    if payload[:1] != b'M':
        return False
    end = payload.index(b'\0', 10)
    assert payload[10:end] == b'kvfdw' and payload[1] == 1
    length, = struct.unpack('>I', payload[end + 1:end + 5])
    change = body.take(payload[end + 5:end + 5 + length])
    return change is not None and show(change)


options = {} if plugin == 'kvfdw' else {'proto_version': '1', 'publication_names': 'p', 'messages': 'true'}
cur.start_replication(slot_name=slot, options=options, decode=plugin == 'kvfdw')
done = False
while not done:
    message = cur.read_message()
    if message is None:
        import select
        select.select([cur], [], [], 1)
        continue
    done = (with_kvfdw if plugin == 'kvfdw' else with_pgoutput)(message.payload)
    cur.send_feedback(flush_lsn=message.data_start)
