# Real file systems on loop devices, for tests that take one away from under a
# running server: unmount it, break it, fill it, put an older copy in its place.  And
# a control group with little memory, for a server as in a small container.
#
# A program that begins with "use KvLoop" is to be started as root.  It goes on as
# the servers' user, in a mount and a pid namespace of its own, and asks a process
# that has remained root for each mount.  When it ends, its servers, mounts and loop
# devices end as well, whatever happened.  Where there is no root or no loop
# device, loop_skip says so and nothing else may be called.
package KvLoop;
use strict;
use warnings;
use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use IO::Handle;
use List::Util qw(max min);
use POSIX ();
use Socket;
use Storable qw(store_fd fd_retrieve);
use lib dirname(abs_path(__FILE__)) . '/../powercut';
use KvDisk;

our @EXPORT_OK = qw(loop_skip loop_types start_write_back group_make group_run group_reclaim group_ooms);

my $root;    # the socket to the process that has remained root

# The control group of group_make, as it knows it.
my $group;

sub make_group
{
	my ($where, $limit, $bytes) = @_;
	mkdir $where or die "mkdir $where: $!\n";
	$group = $where;
	write_file("$where/$limit", $bytes);
}

sub write_file
{
	my ($path, $bytes) = @_;
	open my $file, '>', $path or die "$path: $!\n";
	syswrite $file, "$bytes\n" or die "$path: $!\n";
}

# When all that was in it has ended, or ends soon.
sub remove_group
{
	for (1 .. 100) { last if !defined $group || rmdir $group; select undef, undef, undef, 0.1 }
}

# What that process does for the other; the servers' user may write what is mounted.
my %verbs;
BEGIN
{
	%verbs = (
		make     => \&disk_make,
		mount    => sub { disk_mount(@_); chmod 0777, $_[1] or die "chmod: $!\n" },
		umount   => \&disk_umount,
		small    => \&disk_small_writes,
		shutdown => \&disk_shutdown,
		group => \&make_group,
		punch    => sub { my ($image, @at) = @_; while (my ($o, $l) = splice @at, 0, 2) { system('fallocate', '-p', '-o', $o, '-l', $l, $image) == 0 or die "punch: $!\n" } },
		write => \&write_file,
		tmpfs    => sub { disk_tmpfs(@_); chmod 0777, $_[0] or die "chmod: $!\n" });
}

sub serve
{
	my ($socket) = @_;
	while (my $request = eval { fd_retrieve($socket) })
	{
		my ($verb, @arguments) = @$request;
		eval { $verbs{$verb}->(@arguments) };
		store_fd([$@], $socket);
		$socket->flush;
	}
}

sub ask
{
	my (@request) = @_;
	store_fd(\@request, $root) or die "the helper is gone\n";
	$root->flush;
	my $error = fd_retrieve($root)->[0];
	die $error if length $error;
	return 1;
}

BEGIN
{
	my @unshare = ('unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c', '"$@"; exit $?', 'sh');
	my ($uid, $gid) = (getpwnam($ENV{KV_SERVER_USER} // 'postgres'))[ 2, 3 ];
	defined $uid or $> or die "there is no user to run servers as\n";
	if ($> == 0 && !$ENV{KV_LOOP} && system("@unshare[0 .. 5] true 2>/dev/null") == 0)
	{
		# the shell reaps those whose parents are gone
		$ENV{KV_LOOP} = 1;
		exec @unshare, $^X, (map { ('-I', $_) } grep { !ref } @INC), $0, @ARGV;
		die "unshare: $!";
	}
	if ($ENV{KV_LOOP} && $> == 0)
	{
		socketpair($root, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
		my $pid = fork // die "fork: $!";
		if ($pid != 0)
		{
			close $root;
			serve($theirs);
			waitpid $pid, 0;
			my $status = $?;
			remove_group();
			POSIX::_exit($status & 127 ? 1 : $status >> 8);
		}
		close $theirs;
		delete $ENV{KV_LOOP};
	}
	if ($> == 0)
	{
		$( = $gid;
		$) = "$gid $gid";
		POSIX::setuid($uid);
		$> == $uid && $< == $uid or die "cannot become user $uid: $!";
	}
}

# Why there are no file systems to be had here; undef if there are.
sub loop_skip
{
	my ($dir) = @_;
	return 'needs root that may make namespaces' unless $root;
	return 'needs loop devices' unless -e '/dev/loop-control';
	my $disk = eval { KvLoop->new("$dir/probe", megabytes => 8) };
	return 'cannot mount an ext4 file system here: ' . ($@ =~ s/\n.*//sr) unless $disk;
	$disk->umount;
	unlink $disk->{image};
	return undef;
}

# The types of file system that this machine can make.
sub loop_types { return grep { system("command -v mkfs.$_ >/dev/null 2>&1") == 0 || -x "/sbin/mkfs.$_" || -x "/usr/sbin/mkfs.$_" } qw(ext4 xfs) }

# A new file system, mounted at "$base", its image "$base.image".  megabytes: its
# size; type: ext4 or xfs; options: of mount.  room: the megabytes that there
# really are below it; when they are used up, write-back of new blocks fails, but
# not of the file system's own.
sub new
{
	my ($class, $base, %is) = @_;
	my $self = bless { where => $base, image => "$base.image", type => 'ext4', megabytes => 256, options => '', %is }, $class;
	mkdir $base or die "mkdir $base: $!\n" if !-d $base;
	if ($is{room})
	{
		mkdir "$base.memory" or die "mkdir: $!\n";
		ask('tmpfs', "$base.memory", $is{room});
		$self->{image} = "$base.memory/image";
	}
	ask('make', $self->{image}, $self->{megabytes}, $self->{type}, $is{room} ? 'solid' : ());
	$self->mount;
	return $self;
}

sub mount
{
	my ($self) = @_;
	ask('mount', $self->{image}, $self->{where}, $self->{type}, $self->{options});
	return !$self->{room} || ask('small', $self->{where});
}

# Unmount it, as soon as it is idle: its page cache is gone then.
sub umount { my ($self) = @_; return ask('umount', $self->{where}) }

sub remount { my ($self) = @_; $self->umount; return $self->mount }

# The device forgets what it has of a file from a block up to another: what is written there next needs new room.
sub punch
{
	my ($self, $file, $from, $to) = @_;
	my @at;
	for (`/usr/sbin/filefrag -v '$file'`)
	{
		my ($first, $last, $place) = /^\s*\d+:\s*(\d+)\.\.\s*(\d+):\s*(\d+)\.\./ or next;
		my ($begin, $end) = (max($first, $from), min($last + 1, $to));
		push @at, ($place + $begin - $first) * 4096, ($end - $begin) * 4096 if $begin < $end;
	}
	@at or die "filefrag\n";
	return ask('punch', $self->{image}, @at);
}

# Has the kernel write what the files below a directory have, and reports the result to no process.
sub start_write_back
{
	my ($dir) = @_;
	my ($call) = { x86_64 => 277, aarch64 => 84 }->{ (POSIX::uname())[4] } // die "no number of sync_file_range\n";
	for my $path (split /\0/, `find '$dir' -type f -print0`)
	{
		open my $file, '<', $path or next;
		syscall $call, fileno $file, 0, 0, 2;
	}
	return select undef, undef, undef, 1;
}

# As an I/O error would: nothing more is written, what was not is lost.
sub break_down { my ($self) = @_; return ask('shutdown', $self->{where}) }

# A copy of the device as it is now, which a program that goes on does not notice;
# rollback puts it in the place of the unmounted one's.
sub snapshot
{
	my ($self) = @_;
	disk_copy($self->{image}, "$self->{image}.snapshot");
	return;
}

sub rollback
{
	my ($self) = @_;
	rename "$self->{image}.snapshot", $self->{image} or die "rename: $!\n";
	return;
}

# Use up the room: that of the file system, or below it (its image's).  free gives it back.
sub fill { my ($self) = @_; return hog($self->{where}) }
sub free { my ($self) = @_; return unlink "$self->{where}/hog" }
sub exhaust { my ($self) = @_; return hog("$self->{where}.memory") }
sub relieve { my ($self) = @_; return unlink "$self->{where}.memory/hog" }

sub hog
{
	my ($where) = @_;
	my ($free) = `df --output=avail -B1 '$where'` =~ /(\d+)/;
	system('fallocate', '-l', int($free * 0.99) - 1_000_000, "$where/hog") if $free > 100_000_000;
	open my $file, '>>', "$where/hog" or die "$where/hog: $!\n";
	for my $size (1 << 20, 4096, 1)
	{
		my $bytes = "\xff" x $size;
		while (1) { my $n = syswrite $file, $bytes; last if !defined $n || $n < $size }
	}
	IO::Handle::sync($file);
	close $file;
	return -s "$where/hog";
}

# ---- a control group of memory ----

my ($groups, $group_name);

# Makes a group with so many bytes for what group_run starts.  Returns why there is none; undef if there is.
sub group_make
{
	my ($bytes) = @_;
	return 'needs root that may make namespaces' unless $root;
	my $own = -e '/sys/fs/cgroup/memory/cgroup.procs';
	$groups = $own ? '/sys/fs/cgroup/memory' : '/sys/fs/cgroup';
	$group_name = 'kvfdw-test-' . unpack('H*', pack('SL', $$ & 0xffff, rand 2**32));
	eval { ask('write', "$groups/cgroup.subtree_control", '+memory') if !$own; ask('group', "$groups/$group_name", $own ? 'memory.limit_in_bytes' : 'memory.max', $bytes); 1 }
	  or return 'cannot make a control group of memory here: ' . ($@ =~ s/\n.*//sr);
	return undef;
}

# What $body starts is in the group.
sub group_run
{
	my ($body) = @_;
	ask('write', "$groups/$group_name/cgroup.procs", $$);
	my $done = eval { $body->(); 1 };
	my $error = $@;
	ask('write', "$groups/cgroup.procs", $$);
	die $error if !$done;
	return;
}

# The kernel takes what memory of the group it can, as it would if somebody wanted it.
sub group_reclaim { return ask('write', "$groups/$group_name/memory.force_empty", 0) }

# How many processes of it were killed because memory was short.
sub group_ooms
{
	for my $path (map { "$groups/$group_name/memory.$_" } qw(oom_control events))
	{
		open my $file, '<', $path or next;
		while (<$file>) { return $1 if /^oom_kill (\d+)/ }
	}
	return 'unknown';
}

1;
