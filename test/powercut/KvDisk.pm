# Disks that are files with an ext4, or xfs, in them.  One that is mounted by
# disk_mount_recorded writes a log of every write and flush (recorder.c); from
# the log and the file as it was before, a KvDisk makes what a power cut would
# leave at any moment.
#
# The device that is modelled has a write cache.  What was written before the
# last flush is there, as is a write with FUA.  Of the other writes each is
# there, or not, or in part: any set of its sectors of 512 bytes.  Writes to the
# same sector stay in order.
#
# Needs root, and a mount namespace of its own: then the mounts, the loop devices
# and the recorder end with the last process in it, whatever happens.
package KvDisk;
use strict;
use warnings;
use Exporter 'import';
use POSIX ();
use Time::HiRes qw(sleep);

our @EXPORT = qw(disk_make disk_copy disk_mount disk_mount_recorded disk_umount disk_tmpfs disk_small_writes disk_shutdown);

my $header = 24;    # bytes of a record's header
my $magic = 0x4b565043;
my $sector = 512;
my %recorder;       # where → its process

sub command
{
	my (@command) = @_;
	open my $pipe, '-|', 'sh', '-c', '"$@" 2>&1 </dev/null', 'sh', @command or die "sh: $!";
	my $said = join '', <$pipe>;
	close $pipe or die "@command: $said\n";
}

# ---- files and mounts ----

# solid: an ext4 of 2 GB at most whose image has room for all that is the file
# system's own, so that an image without room for more fails for files only.
sub disk_make
{
	my ($image, $megabytes, $type, $solid) = @_;
	$type //= 'ext4';
	unlink $image;
	command('truncate', '-s', "${megabytes}M", $image);
	if ($type ne 'ext4') { command("mkfs.$type", '-q', '-f', $image) }
	elsif (!$solid) { command('mkfs.ext4', '-q', $image) }
	else
	{
		command('mkfs.ext4', '-q', '-b', 4096, '-m', 0, '-N', 4096, '-J', 'size=8', '-O', '^resize_inode', '-E', 'lazy_itable_init=0,lazy_journal_init=0', $image);
		open my $stat, '-|', "debugfs -R 'ex <8>' '$image' 2>/dev/null" or die "debugfs: $!";
		my @journal = map { /^\s*(\d+)\/\s*\g1\s.*?(\d+)\s*-\s*(\d+)\s+\d+\s*$/ ? [ $2, $3 ] : () } <$stat>;
		close $stat;
		@journal or die "debugfs does not tell where the journal is\n";
		write_again($image, $_->[0] * 4096, ($_->[1] + 1) * 4096) for [ 0, 1023 ], @journal;
	}
}

# Writing what is there makes a sparse file solid.
sub write_again
{
	my ($path, $from, $to) = @_;
	open my $file, '+<:raw', $path or die "$path: $!";
	sysseek $file, $from, 0;
	sysread $file, my $bytes, $to - $from;
	sysseek $file, $from, 0;
	syswrite($file, $bytes) == $to - $from or die "$path: $!\n";
	close $file;
}

sub disk_copy
{
	my ($from, $to) = @_;
	unlink $to;
	command('cp', '--sparse=auto', '--reflink=auto', $from, $to);
}

sub disk_mount
{
	my ($image, $where, $type, $options) = @_;
	command('mount', '-t', $type || 'ext4', '-o', join(',', 'loop', $options || ()), $image, $where);
}

sub umount_idle
{
	my ($where) = @_;
	my $end = time + 180;
	until (eval { command('umount', $where); 1 })
	{
		die $@ if $@ !~ /busy/ || time > $end;
		sleep 0.1;
	}
}

# From now on a block at a time: loop devices of some kernels take a write for
# complete if its beginning could be written.
sub disk_small_writes
{
	my ($where) = @_;
	my ($device) = `findmnt -n -o SOURCE '$where'` =~ m{^/dev/(\w+)} or die "what is mounted at $where?\n";
	open my $file, '>', "/sys/block/$device/queue/max_sectors_kb" or die "$device: $!\n";
	print $file 4;
	close $file or die "$device: $!\n";
}

sub disk_tmpfs
{
	my ($where, $megabytes) = @_;
	command('mount', '-t', 'tmpfs', '-o', "size=${megabytes}m", 'kvfdw', $where);
}

# The file system stops in the middle, as after an I/O error: what was not
# written back is lost, every access fails until it is mounted again.
sub disk_shutdown
{
	my ($where) = @_;
	open my $dir, '<', $where or die "$where: $!\n";
	my $no_flush = pack 'L', 2;
	# XFS_IOC_GOINGDOWN, which ext4 knows as well
	ioctl($dir, 0x8004587d, $no_flush) or die "shutdown of $where: $!\n";
}

# The log is empty before the mount's own writes.
sub disk_mount_recorded
{
	my ($image, $where, $log) = @_;
	my $device = "$where.device";
	mkdir $device;
	$recorder{$where} = fork // die "fork: $!";
	if ($recorder{$where} == 0)
	{
		open STDERR, '>', "$log.messages";
		open STDOUT, '>&', \*STDERR;
		exec 'nbdfuse', "$device/disk", '[', 'nbdkit', '--exit-with-parent', $ENV{KV_RECORDER}, "image=$image", "log=$log", ']' or POSIX::_exit(127);
	}
	for (1 .. 200) { last if -e "$device/disk"; sleep 0.05 }
	-e "$device/disk" or die "the recorder does not start, see $log.messages\n";
	disk_mount("$device/disk", $where);
	return;
}

# As soon as it is idle: what an ended process had open may be released later.
# The log is complete when it returns.
sub disk_umount
{
	my ($where) = @_;
	umount_idle($where);
	my $pid = delete $recorder{$where} // return;
	umount_idle("$where.device");
	waitpid $pid, 0;
	return;
}

# ---- the log ----

# A recording: its log, and the image as it was before, which is changed by cut().
sub new
{
	my ($class, $log, $base) = @_;
	open my $in, '<:raw', $log or die "$log: $!";
	open my $out, '+<:raw', $base or die "$base: $!";
	my $self = bless { log => $in, base => $base, out => $out, records => [], end => [], unflushed => [], next => 0, pending => [] }, $class;
	my ($at, $unflushed, $bytes) = (0, 0);
	while (($bytes = read $in, my $head, $header) == $header)
	{
		my ($is, $type, $fua, $offset, $length) = unpack 'L<aCx2Q<L<x4', $head;
		die "$log: no record at $at\n" if $is != $magic;
		$unflushed = $type eq 'F' ? 0 : $unflushed + 1;
		push @{ $self->{records} }, $type eq 'F' ? '' : pack('QQLC', $at + $header, $offset, $length, $fua);
		$at += $header + $length;
		push @{ $self->{end} }, $at;
		push @{ $self->{unflushed} }, $unflushed;
		seek $in, $at, 0;
	}
	die "$log: ends in the middle of a record\n" if $bytes != 0;
	return $self;
}

# A cut is a number of records.  The log's size when there were so many:
sub position { my ($self, $cut) = @_; return $cut ? $self->{end}[ $cut - 1 ] : 0 }

# The first cut at which the log has at least this size.
sub cut_at
{
	my ($self, $position) = @_;
	my ($low, $high) = (0, scalar @{ $self->{end} });
	while ($low < $high)
	{
		my $middle = int(($low + $high) / 2);
		if ($self->position($middle) >= $position) { $high = $middle } else { $low = $middle + 1 }
	}
	return $low;
}

# A cut between two, by rand: half of them anywhere, the others where many
# writes were not flushed.
sub choose
{
	my ($self, $from, $to) = @_;
	my @drawn = map { $from + int rand($to - $from + 1) } 1 .. (rand() < 0.5 ? 1 : 10);
	my $waiting = sub { my ($cut) = @_; return $cut ? $self->{unflushed}[ $cut - 1 ] : 0 };
	return (sort { $waiting->($b) <=> $waiting->($a) || $a <=> $b } @drawn)[0];
}

# The bytes of a write, or some of its sectors, to a file.
sub apply
{
	my ($self, $out, $write, @sectors) = @_;
	my ($at, $offset, $length) = unpack 'QQL', $write;
	my @parts = @sectors ? map { [ $_ * $sector, $sector ] } @sectors : [ 0, $length ];
	for my $part (@parts)
	{
		seek $self->{log}, $at + $part->[0], 0;
		(read $self->{log}, my $data, $part->[1]) == $part->[1] or die 'the log is too short';
		seek $out, $offset + $part->[0], 0;
		print $out $data or die "cannot write to the image: $!\n";
	}
}

# Makes $image what a power cut leaves, by rand.  The cuts of a recording come
# in ascending order.  Returns how many writes were not flushed, and how many of
# them are lost and torn.
sub cut
{
	my ($self, $cut, $image) = @_;
	my ($pending, $lost, $torn) = ($self->{pending}, 0, 0);
	die 'cuts in descending order' if $cut < $self->{next};
	while ($self->{next} < $cut)
	{
		my $record = $self->{records}[ $self->{next}++ ];
		if (length $record) { push @$pending, $record; next }
		$self->apply($self->{out}, $_) for @$pending;
		@$pending = ();
	}
	$self->{out}->flush;
	disk_copy($self->{base}, $image);

	open my $out, '+<:raw', $image or die "$image: $!";
	my $keep = (0, 0, 0.1, 0.5, 0.9)[ rand 5 ];
	my $tear = (0, 0.1, 0.3)[ rand 3 ];
	for my $write (@$pending)
	{
		my ($length, $fua) = (unpack 'QQLC', $write)[ 2, 3 ];
		my $sectors = $length / $sector;
		my $x = $fua ? 1 : rand;
		if ($x >= 1 - $keep) { $self->apply($out, $write) }
		elsif ($x < $tear * (1 - $keep) && $sectors > 1)
		{
			# the beginning, the end, or here and there
			my $bound = 1 + int rand($sectors - 1);
			my $how = int rand 3;
			my @there = $how == 0 ? 0 .. $bound - 1 : $how == 1 ? $bound .. $sectors - 1 : grep { rand() < 0.5 } 0 .. $sectors - 1;
			$self->apply($out, $write, @there) if @there;
			$torn++;
		}
		else { $lost++ }
	}
	close $out or die "cannot write to the image: $!\n";
	return (scalar @$pending, $lost, $torn);
}

1;
