//! Structures shared with the kernel, as bytes and back.

/// A structure that every byte pattern is a value of: integers and arrays of them, with no padding between.
///
/// # Safety
/// The type must be `repr(C)`, hold only integers, and have no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for i32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// The bytes of a value.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a Plain has no padding, so all of its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The bytes of a value, to be written.
pub fn bytes_of_mut<T: Plain>(value: &mut T) -> &mut [u8] {
    // SAFETY: a Plain has no padding, and any bytes are a value of it.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}

/// The value of as many bytes as it has; `None` when there are fewer.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: any bytes are a value of a Plain, and there are enough; they need not be aligned.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
